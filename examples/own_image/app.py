"""A job in the team's own image, from a registry in another account, pinned by digest.

The image holds what ``training_scripts/requirements.lock`` lists, so no wheels travel with the
bundle. Build it ``FROM`` AWS's PyTorch training image. The registry's own policy must let the job's
role pull; that cannot be changed from this stack.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from cdk_blackwell import Capacity, Foundation, LargeShardedJob, ModelShape, TrainingImage

DIGEST = "sha256:" + "0123456789abcdef" * 4


class OwnImageStack(Stack):
    """A 32B model on four nodes of a training plan."""

    def __init__(self, scope: Construct, construct_id: str, **props: Any) -> None:
        super().__init__(scope, construct_id, **props)
        images = ecr.Repository.from_repository_attributes(
            self,
            "Images",
            repository_arn="arn:aws:ecr:us-west-2:210987654321:repository/training",
            repository_name="training",
        )
        LargeShardedJob(
            self,
            "Pretrain",
            foundation=Foundation(
                self,
                "Foundation",
                availability_zone="us-west-2b",
                storage_gib=2400,
                throughput_per_tib=1000,
            ),
            image=TrainingImage.from_ecr_repository(images, DIGEST),
            packages_in_image=True,
            model=ModelShape.preset("qwen2.5-32b"),
            dataset_prefix="tokens",
            sequence_length=32_768,
            train_tokens=29_000_000_000,
            instance_count=4,
            capacity=Capacity.training_plan(
                "arn:aws:sagemaker:us-west-2:123456789012:training-plan/january",
                fee_usd=66_000,
                availability_zone="us-west-2b",
            ),
            max_runtime=Duration.days(5),
            hourly_price_usd=98.84,
            max_cost_usd=70_000,
        )


app = App()
OwnImageStack(app, "OwnImage", env=Environment(account="123456789012", region="us-west-2"))
app.synth()
