"""Run rules over templates, without the CDK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.rules import RULES
from cdk_blackwell.compliance.templates import Templates


@dataclass(frozen=True, kw_only=True)
class BrokenRule:
    """One rule, broken in one place."""

    rule: Rule
    finding: Finding

    def __str__(self) -> str:
        """What was found, why it hurts, what to do."""
        resource = self.finding.resource
        return (
            f"{self.rule.id}: {resource.template.name}, {resource.logical_id}: "
            f"{self.finding.found}. {self.rule.why} {self.rule.fix}"
        )


def broken_rules(templates: Templates, rules: Sequence[Rule] = RULES) -> list[BrokenRule]:
    """Everything that any of the rules finds, each once."""
    found: dict[tuple[str, str, str, str], BrokenRule] = {}
    for rule in rules:
        for finding in rule.check(templates):
            resource = finding.resource
            key = (rule.id, resource.template.name, resource.logical_id, finding.found)
            found.setdefault(key, BrokenRule(rule=rule, finding=finding))
    return list(found.values())
