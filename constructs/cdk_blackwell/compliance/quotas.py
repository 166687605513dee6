"""What an account may do before any of its quotas is raised."""

from __future__ import annotations

from typing import Final

LONGEST_RUN_SECONDS: Final = 5 * 86_400
"""Of one training job: Service Quotas, "Longest run time for a training job"."""
