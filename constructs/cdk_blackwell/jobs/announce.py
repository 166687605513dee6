"""What a job tells: the people who run ``cdk synth``, and the command line, by its output."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

from aws_cdk import Annotations, CfnOutput, Stack

from cdk_blackwell.compliance.quotas import LONGEST_RUN_SECONDS
from cdk_blackwell.infrastructure.lustre import shortfall
from cdk_blackwell.jobs.checks import shared_warnings
from cdk_blackwell.jobs.cost_guard import MAX_RUNTIME_SECONDS
from cdk_blackwell.planning.contracts import StackOutput, stack_output_name
from cdk_blackwell.planning.storage_needs import storage_needs

if TYPE_CHECKING:
    from cdk_blackwell.jobs.training_job import TrainingJob

_SPEED_BAR: Final = 0.2
"""How far predicted speeds lie from published runs (docs/planning.md)."""


def annotate(job: TrainingJob, *, encrypt_between_instances: bool) -> None:
    """Show what a launch costs, and every warning under an id to acknowledge it by.

    The plan's warnings are numbered; there is one id for each other kind.
    """
    stack, annotations = Stack.of(job), Annotations.of(job)
    found = {
        **{f"plan-{index}": [text] for index, text in enumerate(job.plan.warnings)},
        "quota": job.capacity.warnings(instance_count=job.instance_count),
        "cost": job.cost.warnings(),
        "run-time": _run_time_warnings(job),
        "account": shared_warnings(
            stack,
            checkpoint_bucket=job.checkpoint_store.bucket,
            dataset_bucket=job.file_system.dataset_bucket,
            encryption_key=job.encryption_key,
        ),
        "file-system-size": _storage_warnings(job),
        "encryption": _encryption_warnings(job.instance_count, encrypt_between_instances),
    }
    for name, texts in found.items():
        if texts:
            annotations.add_warning_v2(f"cdk-blackwell:{name}", "; ".join(texts))
    annotations.add_info(job.cost.text())


def _run_time_warnings(job: TrainingJob) -> list[str]:
    """An attempt that is cut off before its plan ends; the controller does not resubmit it."""
    hours, allowed = job.plan.cost.total_hours, job.cost.runtime_seconds / 3600
    if hours <= allowed:
        return []
    most, quota = MAX_RUNTIME_SECONDS / 3600, LONGEST_RUN_SECONDS / 3600
    wanted = math.ceil(hours * (1 + _SPEED_BAR))
    longer = f"max_runtime of {wanted:,} hours, " if wanted <= most else ""
    return [
        f"{job.plan.train_tokens:,} tokens are predicted to take {hours:,.1f} hours, and "
        f"max_runtime ends the run after {allowed:,.1f}: give {longer}fewer train_tokens or more "
        f"instances (SageMaker allows at most {most:,.0f} hours, and {quota:.0f} until the "
        "account's quota is raised)"
    ]


def _storage_warnings(job: TrainingJob) -> list[str]:
    """A file system too small or slow for this job's checkpoints; the dataset is not counted."""
    size = job.file_system.size
    if size is None or job.instance_count == 1:
        return []
    need = storage_needs(
        job.model,
        instance_count=job.instance_count,
        interval_seconds=job.definition.run["checkpoint"]["interval_seconds"],
    )
    found = shortfall(size, [need])
    return [] if found is None else [found]


def _encryption_warnings(instance_count: int, encrypt_between_instances: bool) -> list[str]:
    """SageMaker's inter-container encryption, where it matters."""
    if not encrypt_between_instances or instance_count == 1:
        return []
    return [
        "encrypt_between_instances slows training on several instances, and what it does to EFA is "
        "not documented: measure it in a trial run"
    ]


def add_output(job: TrainingJob) -> CfnOutput:
    """The job's one output, ``CdkBlackwell<Job>``."""
    value = StackOutput(
        controller=job.controller_function.function_name,
        job=job.job_name,
        tier=job.tier,
        checkpoint_bucket=job.checkpoint_store.bucket.bucket_name,
        dataset_bucket=job.file_system.dataset_bucket.bucket_name,
        topic=job.monitoring.topic.topic_arn,
        table=job.controller.table.table_name,
        dashboard=job.dashboard.dashboard_name,
    )
    output = CfnOutput(
        job,
        "Output",
        description=f"Training job {job.job_name}, for the cdk-blackwell command line",
        value=json.dumps(value.to_dict()),
    )
    output.override_logical_id(stack_output_name(job.job_name))
    return output
