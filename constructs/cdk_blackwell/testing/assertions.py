"""Assertions about jobs and apps; each says what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from aws_cdk import App, Token

from cdk_blackwell.compliance.checking import broken_rules
from cdk_blackwell.compliance.nag import matching, nag_findings, packs
from cdk_blackwell.compliance.rule import Rule
from cdk_blackwell.compliance.rules import RULES
from cdk_blackwell.compliance.service_model import check_training_request
from cdk_blackwell.compliance.templates import Templates
from cdk_blackwell.jobs.training_job import TrainingJob
from cdk_blackwell.lifecycle.handler.request import render_request
from cdk_blackwell.testing.looking import SAMPLE_RUN, SAMPLE_STACK_ID


def assert_fits(job: TrainingJob, *, headroom_gib: float = 0.0) -> None:
    """The plan fits a GPU's memory, and the request keeps within SageMaker's limits.

    A job that does not fit is refused when it is made already; this holds it to more.

    :param headroom_gib: GiB per GPU that must stay free beside the plan's own margin. Default: 0.
    """
    memory = job.plan.memory
    free = memory.budget_gib - memory.reserved_gib - memory.margin_gib
    if not memory.fits or free < headroom_gib:
        raise AssertionError(
            f"{job.node.path} is predicted to reserve {memory.reserved_gib:.1f} GiB per GPU with a "
            f"margin of {memory.margin_gib:.1f} GiB; of a budget of {memory.budget_gib:.1f} GiB "
            f"{free:.1f} GiB stay free, and {headroom_gib:.1f} GiB are asked for"
        )
    request = render_request(
        job.definition, stack_id=SAMPLE_STACK_ID, run_id=job.run_id or SAMPLE_RUN, attempt=1
    )
    violations = check_training_request(request, is_unresolved=Token.is_unresolved)
    if violations:
        lines = "; ".join(map(str, violations))
        raise AssertionError(f"the request of {job.node.path} breaks SageMaker's limits: {lines}")


def assert_compliant(
    app: App,
    *,
    rules: Sequence[Rule] = RULES,
    accepted: Mapping[str, str] | None = None,
    nag: bool = False,
) -> None:
    """No template of ``app`` breaks a rule of this library (``docs/rules.md``). Synthesises it.

    :param rules: which rules. Default: all, errors and warnings.
    :param accepted: rule id to the reason why it may be broken here. Default: none. An id that
        nothing breaks fails too, so that the list stays true.
    :param nag: also run cdk-nag's AwsSolutions, HIPAA, NIST 800-53 R5 and PCI packs; findings in
        this library's own constructs count as acknowledged with its reasons. Default: no.
    """
    reasons = dict(accepted or {})
    unknown = sorted(set(reasons) - {rule.id for rule in rules})
    if unknown:
        raise ValueError(f"accepted names {', '.join(unknown)}, which is no id of these rules")
    broken = broken_rules(_templates(app), rules)
    problems = [str(each) for each in broken if each.rule.id not in reasons]
    idle = sorted(set(reasons) - {each.rule.id for each in broken})
    problems += [f"{rule_id} is accepted, but nothing breaks it: remove it" for rule_id in idle]
    if nag:
        problems += [
            f"{finding.id}: {finding.construct_path}"
            for finding, entry in matching(app, nag_findings(app, packs(app)))
            if entry is None
        ]
    if problems:
        raise AssertionError(f"{len(problems)} problem(s):\n" + "\n".join(problems))


def _templates(app: App) -> Templates:
    assembly = app.synth()
    return Templates.read(
        {
            stack.hierarchical_id: Path(stack.template_full_path)
            for stack in assembly.stacks_recursively
        }
    )
