"""An own training script in place of the bundled trainer; all around it stays.

The script travels in a channel of its own. Network, EFA rules, file system, role, alarms, cost
ceiling and run controller are the library's; the script keeps what the controller relies on:
it resumes from ``CDKB_CHECKPOINT_DIR``, and its failures begin with a class, as ``script/train.py``
shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aws_cdk import App, Duration, Environment, Stack
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

from cdk_blackwell import Foundation, ModelShape, SmallModelJob
from cdk_blackwell.jobs.request import s3_channel

SCRIPT = Path(__file__).parent / "script"


class OwnScriptJob(SmallModelJob):
    """Starts ``train.py`` of a folder with torchrun instead of the bundle's launcher."""

    def __init__(self, scope: Construct, construct_id: str, *, script: Path, **job: Any) -> None:
        # A sibling, not a child: the extension points run while this job is being made.
        self._script = Asset(scope, f"{construct_id}Script", path=str(script))
        super().__init__(scope, construct_id, **job)
        self._script.grant_read(self.role)

    def channels(self) -> list[dict[str, Any]]:
        return [*super().channels(), s3_channel("script", self._script.s3_object_url)]

    def entrypoint(self) -> tuple[Sequence[str], Sequence[str]]:
        unpack = "cd /opt/ml/input/data/script && python3 -m zipfile -e *.zip /opt/ml/code"
        start = "exec torchrun --nproc_per_node=8 /opt/ml/code/train.py"
        return ["/bin/bash", "-c"], [f"{unpack} && {start}"]


class OwnScriptStack(Stack):
    """One node; the plan still checks that the model fits."""

    def __init__(self, scope: Construct, construct_id: str, **props: Any) -> None:
        super().__init__(scope, construct_id, **props)
        OwnScriptJob(
            self,
            "Train",
            script=SCRIPT,
            foundation=Foundation(self, "Foundation", availability_zone="us-west-2b"),
            model=ModelShape.preset("llama-3.2-1b"),
            dataset_prefix="tokens",
            sequence_length=8192,
            max_runtime=Duration.hours(20),
            hourly_price_usd=113.93,
            max_cost_usd=8_000,
        )


app = App()
OwnScriptStack(app, "OwnScript", env=Environment(account="123456789012", region="us-west-2"))
app.synth()
