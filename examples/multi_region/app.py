"""The same job in two regions: launch where there is capacity, by that stack's ``run_id``.

    cdk deploy Train-us-west-2 -c run_id=2027-01-15-a

Each region has its own network, file system, dataset and checkpoints. Only the stack that is given
a ``run_id`` launches.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import App, Duration, Environment, Stack
from constructs import Construct

from cdk_blackwell import Foundation, ModelShape, SmallModelJob

ZONES = {"us-west-2": "us-west-2b", "us-east-1": "us-east-1d"}


class TrainStack(Stack):
    """All that one region needs."""

    def __init__(self, scope: Construct, construct_id: str, *, zone: str, **props: Any) -> None:
        super().__init__(scope, construct_id, **props)
        SmallModelJob(
            self,
            "Pretrain",
            foundation=Foundation(self, "Foundation", availability_zone=zone),
            model=ModelShape.preset("qwen3-4b"),
            dataset_prefix="tokens",
            sequence_length=8192,
            train_tokens=17_000_000_000,
            max_runtime=Duration.days(2),
            hourly_price_usd=113.93,
            max_cost_usd=20_000,
            run_id=self.node.try_get_context("run_id"),
        )


app = App()
for region, zone in ZONES.items():
    environment = Environment(account="123456789012", region=region)
    TrainStack(app, f"Train-{region}", zone=zone, env=environment)
app.synth()
