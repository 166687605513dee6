"""Apply the acknowledgements to an app, and ask the packs of cdk-nag directly.

cdk-nag itself (the ``nag`` extra) is imported only where packs are run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import jsii
from aws_cdk import (
    Acknowledgment,
    IPolicyValidationContext,
    IPolicyValidationPlugin,
    PolicyValidationPluginReport,
    Stage,
    Validations,
)
from constructs import IConstruct

from cdk_blackwell._version import __version__
from cdk_blackwell.compliance.acknowledgements import ACKNOWLEDGEMENTS, Acknowledged

if TYPE_CHECKING:
    from cdk_nag import NagPack

PACKAGE: Final = "cdk_blackwell."
_ID: Final = re.compile(r"(?P<rule>[^\[]+)(?:\[(?P<finding>.*)\])?", re.DOTALL)


@dataclass(frozen=True, kw_only=True, order=True)
class NagFinding:
    """One finding of a pack."""

    construct_path: str
    rule: str
    """``AwsSolutions-IAM5``."""
    finding: str | None
    """``Resource::*``; None for rules that report a resource as a whole."""

    @property
    def id(self) -> str:
        """As it is acknowledged."""
        return self.rule if self.finding is None else f"{self.rule}[{self.finding}]"


def packs(scope: IConstruct) -> list[NagPack]:
    """The four packs this library is held to; ImportError names the extra to install."""
    try:
        from cdk_nag import (
            AwsSolutionsChecks,
            HIPAASecurityChecks,
            NIST80053R5Checks,
            PCIDSS321Checks,
        )
    except ImportError as error:
        raise ImportError(
            "cdk-nag is not installed: run pip install 'cdk-blackwell[nag]'"
        ) from error
    return [
        AwsSolutionsChecks(scope),
        HIPAASecurityChecks(scope),
        NIST80053R5Checks(scope),
        PCIDSS321Checks(scope),
    ]


def nag_findings(scope: IConstruct, using: Sequence[NagPack]) -> list[NagFinding]:
    """What the packs report that nobody has acknowledged; ``scope`` must be synthesised."""
    found = set()
    for pack in using:
        for violation in pack.validate_scope(scope).violations:
            match = _ID.fullmatch(violation.rule_name)
            assert match is not None
            for resource in violation.violating_resources:
                found.add(
                    NagFinding(
                        construct_path=resource.construct_path or "",
                        rule=match["rule"],
                        finding=match["finding"],
                    )
                )
    return sorted(found, key=lambda each: (each.construct_path, each.id))


def matching(
    scope: IConstruct, findings: Iterable[NagFinding]
) -> Iterator[tuple[NagFinding, Acknowledged | None]]:
    """Each finding with the entry that answers it, if there is one."""
    owners = _owners(scope)
    for finding in findings:
        yield (
            finding,
            next(
                (
                    entry
                    for entry in ACKNOWLEDGEMENTS
                    if finding.rule in entry.rules
                    and entry.construct
                    in owners.get(_above(finding.construct_path, entry.path), ())
                    and _same_finding(entry.finding, finding.finding)
                ),
                None,
            ),
        )


def acknowledge_findings(scope: IConstruct) -> None:
    """Acknowledge what this library's constructs below ``scope`` are known to report.

    Call it once on the app (or a stage), beside the packs and in any order:
    ``Validations.of(app).add_plugins(AwsSolutionsChecks(app))``. Each finding is acknowledged by
    itself, at its own resource, with the reason of ``ACKNOWLEDGEMENTS``; constructs of yours are
    never touched.
    """
    stage = scope if Stage.is_stage(scope) else Stage.of(scope)
    if stage is None:
        raise ValueError(f"{scope.node.path or scope} is in no app: give the app or a stage")
    Validations.of(stage).add_plugins(_Acknowledging(scope))


@jsii.implements(IPolicyValidationPlugin)
class _Acknowledging:
    """Runs with the packs, after synthesis: only then do resources have their final text.

    It reports nothing. The CDK collects acknowledgements after all plugins have run, so it does not
    matter which of them runs first.
    """

    def __init__(self, scope: IConstruct) -> None:
        self._scope = scope

    @property
    def name(self) -> str:
        return "cdk-blackwell acknowledgements"

    @property
    def version(self) -> str:
        return __version__

    @property
    def rule_ids(self) -> list[str]:
        return []

    def validate(self, context: IPolicyValidationContext) -> PolicyValidationPluginReport:
        acknowledge_now(self._scope)
        return PolicyValidationPluginReport(success=True, violations=[])


def acknowledge_now(scope: IConstruct) -> list[NagFinding]:
    """Acknowledge in a tree that is synthesised; gives what was acknowledged."""
    every = packs(scope)
    answered: dict[str, dict[NagFinding, str]] = {}
    for finding, entry in matching(scope, nag_findings(scope, every)):
        if entry is not None:
            answered.setdefault(finding.construct_path, {})[finding] = entry.reason
    for construct in scope.node.find_all():
        reasons = answered.get(construct.node.path, {})
        if reasons:
            Validations.of(construct).acknowledge(
                *(
                    # Both forms: the CDK's report knows a rule by its plugin's name, packs without.
                    Acknowledgment(id=f"{prefix}{finding.id}", reason=reason)
                    for finding, reason in reasons.items()
                    for pack in every
                    if finding.rule.startswith(f"{pack.name}-")
                    for prefix in ("", f"{pack.name}::")
                )
            )
    return [finding for reasons in answered.values() for finding in reasons]


def _owners(scope: IConstruct) -> dict[str, set[str]]:
    """Path -> names of this library's classes that the construct there is one of."""
    found: dict[str, set[str]] = {}
    for construct in scope.node.find_all():
        names = {
            kind.__name__ for kind in type(construct).__mro__ if kind.__module__.startswith(PACKAGE)
        }
        if names:
            found[construct.node.path] = names
    return found


def _above(path: str, below: str) -> str:
    """The path of the construct that ``below`` leads from; empty where it does not."""
    return path.removesuffix(f"/{below}") if path.endswith(f"/{below}") else ""


def _same_finding(template: str | None, finding: str | None) -> bool:
    if template is None or finding is None:
        return template is finding
    pattern = r"[^*?]+".join(map(re.escape, template.split("{}")))
    return re.fullmatch(pattern, finding) is not None
