"""The rules as a validation plugin that any CDK app can use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jsii
from aws_cdk import (
    IPolicyValidationContext,
    IPolicyValidationPlugin,
    PolicyValidationPluginReport,
    PolicyViolatingResource,
    PolicyViolation,
)

from cdk_blackwell._version import __version__
from cdk_blackwell.compliance.checking import broken_rules
from cdk_blackwell.compliance.rule import Rule
from cdk_blackwell.compliance.rules import RULES
from cdk_blackwell.compliance.templates import Templates

PLUGIN_NAME: Final = "cdk-blackwell"


@jsii.implements(IPolicyValidationPlugin)
class TrainingRules:
    """Checks every template of an app for what goes wrong with training on SageMaker.

    ``Validations.of(app).add_plugins(TrainingRules())``. Errors stop synthesis, warnings are
    printed. Where one does not apply, acknowledge ``cdk-blackwell::<rule id>`` on the construct,
    with the reason: ``Validations.of(construct).acknowledge(Acknowledgment(id=..., reason=...))``.

    :param rules: which to check. Default: all of ``RULES``.
    """

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self._rules = tuple(rules)

    @property
    def name(self) -> str:
        """Namespace of the rules' ids."""
        return PLUGIN_NAME

    @property
    def version(self) -> str:
        """This library's."""
        return __version__

    @property
    def rule_ids(self) -> list[str]:
        """Ids of the rules it checks."""
        return [rule.id for rule in self._rules]

    def validate(self, context: IPolicyValidationContext) -> PolicyValidationPluginReport:
        """Called by the CDK after synthesis."""
        templates = Templates.read(
            {
                stack.stack_construct_path: Path(stack.template_path)
                for stack in context.stack_templates
            }
        )
        broken = broken_rules(templates, self._rules)
        return PolicyValidationPluginReport(
            success=not any(each.rule.severity == "error" for each in broken),
            plugin_version=__version__,
            violations=[
                PolicyViolation(
                    rule_name=each.rule.id,
                    description=f"{each.finding.found}. {each.rule.why}",
                    fix=each.rule.fix,
                    severity=each.rule.severity,
                    violating_resources=[
                        PolicyViolatingResource(
                            resource_logical_id=each.finding.resource.logical_id,
                            template_path=str(each.finding.resource.template.path),
                            locations=[each.finding.where],
                        )
                    ],
                )
                for each in broken
            ],
        )
