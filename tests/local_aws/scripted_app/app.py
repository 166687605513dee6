"""Two jobs side by side on one foundation, whose containers run ``steps.py`` in seconds.

Everything around the script is the library's own. Set by the environment, as a user would edit
code: ``FIRST_RUN`` and ``SECOND_RUN`` are the jobs' run_ids, ``NOTE`` and ``SAVE_SECONDS`` change
the first and the second job's environment, ``BROKEN`` adds a resource that cannot be made, after
the first job.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aws_cdk import App, CfnResource, Duration, Stack
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

from cdk_blackwell import ModelShape, SmallModelJob
from cdk_blackwell.jobs.request import s3_channel
from stacks.foundation_stack import FoundationStack

SCRIPT = Path(__file__).parent / "steps.py"


class ScriptedJob(SmallModelJob):
    """Runs the script in place of the bundle's launcher."""

    def __init__(self, scope: Construct, construct_id: str, **job: Any) -> None:
        self._script = Asset(scope, f"{construct_id}Script", path=str(SCRIPT))
        super().__init__(scope, construct_id, **job)
        self._script.grant_read(self.role)

    def channels(self) -> list[dict[str, Any]]:
        return [*super().channels(), s3_channel("script", self._script.s3_object_url)]

    def entrypoint(self) -> tuple[Sequence[str], Sequence[str]]:
        return ["/bin/sh", "-c"], ['exec python3 "$SM_CHANNEL_SCRIPT"/*.py']


class ScriptedStack(Stack):
    """One job; what is given beside the foundation may differ between deploys."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        foundation: FoundationStack,
        run_id: str | None,
        environment: dict[str, str],
        broken: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        job = ScriptedJob(
            self,
            "Train",
            job_name=construct_id.lower(),
            foundation=foundation.foundation,
            model=ModelShape.preset("llama-3.2-1b"),
            dataset_prefix="tokens",
            sequence_length=8192,
            global_batch_tokens=1_048_576,
            train_tokens=1_048_576_000,
            max_runtime=Duration.hours(1),
            hourly_price_usd=100,
            max_cost_usd=500,
            run_id=run_id,
            environment=environment,
            packages_in_image=True,
        )
        if broken:
            CfnResource(self, "Broken", type="AWS::Budgets::Budget").node.add_dependency(job)


def edited(name: str) -> dict[str, str]:
    """A variable of the container's environment, if it is given."""
    return {name: os.environ[name]} if name in os.environ else {}


app = App()
shared = FoundationStack(app, "FoundationStack", availability_zone="us-west-2a")
ScriptedStack(
    app,
    "First",
    foundation=shared,
    run_id=os.environ.get("FIRST_RUN"),
    environment=edited("NOTE"),
    broken="BROKEN" in os.environ,
)
ScriptedStack(
    app,
    "Second",
    foundation=shared,
    run_id=os.environ.get("SECOND_RUN"),
    environment=edited("SAVE_SECONDS"),
)
app.synth()
