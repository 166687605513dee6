"""What rules must know of SageMaker's instance types and capacity."""

from __future__ import annotations

import re
from typing import Final

_FAMILY: Final = re.compile(r"ml\.([a-z0-9-]+)\.")

BLACKWELL_FAMILIES: Final = frozenset({"p6-b200", "p6-b300"})

EFA_FAMILIES: Final = BLACKWELL_FAMILIES | frozenset(
    {"p4d", "p4de", "p5", "p5e", "p5en", "trn1", "trn1n", "trn2"}
)
"""Families whose instances talk to each other by EFA."""

NVME_FAMILIES: Final = EFA_FAMILIES | frozenset(
    {"g4dn", "g5", "g6", "g6e", "gr6", "m5d", "c5d", "r5d"}
)
"""Families with local NVMe, on which SageMaker refuses ``VolumeKmsKeyId``."""

PLAN_INSTANCE_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)
"""What SageMaker sells in training plans."""


def family(instance_type: str) -> str:
    """``p6-b200`` of ``ml.p6-b200.48xlarge``; empty where the type is not known."""
    match = _FAMILY.match(instance_type)
    return match[1] if match else ""
