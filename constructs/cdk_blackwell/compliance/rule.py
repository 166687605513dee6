"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from cdk_blackwell.compliance.templates import Resource, Templates

Severity = Literal["error", "warning"]
"""An error stops synthesis; a warning is printed, and stops it under ``cdk synth --strict``."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One place where a rule is broken."""

    resource: Resource
    found: str
    """What stands there, with the values."""
    where: str = "Properties"
    """Path inside the resource."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: what it looks for, why that hurts, what to do."""

    id: str
    title: str
    """The rule itself, as a sentence."""
    why: str
    """What happens to those who break it."""
    fix: str
    """What to do."""
    severity: Severity
    check: Callable[[Templates], Iterator[Finding]]
