"""A team's own job class, used in a stack of its own beside other resources.

What every model of the team shares stands in ``TeamJob``, through the extension points of
``TrainingJob``; the stack says only what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from cdk_blackwell import Foundation, MidModelJob, ModelShape, RecipeOverrides


class TeamJob(MidModelJob):
    """Rowwise FP8, no biased attention, and the right to read the team's table of experiments."""

    def __init__(
        self, scope: Construct, construct_id: str, *, experiments: dynamodb.ITable, **job: object
    ) -> None:
        self._experiments = experiments  # before super(): the extension points read it
        super().__init__(scope, construct_id, **job)  # type: ignore[arg-type]
        self.monitoring.topic.add_subscription(
            subscriptions.EmailSubscription("training@example.com")
        )

    def check_model(self, model: ModelShape) -> None:
        if model.attention_bias:
            raise ValueError("the team trains models without attention biases only")

    def recipe(self, overrides: RecipeOverrides) -> RecipeOverrides:
        return replace(overrides, precision=overrides.precision or "fp8_rowwise")

    def policy_statements(self) -> Sequence[iam.PolicyStatement]:
        return [
            iam.PolicyStatement(
                actions=["dynamodb:GetItem", "dynamodb:PutItem"],
                resources=[self._experiments.table_arn],
            )
        ]

    def container_environment(self) -> dict[str, str]:
        return {**super().container_environment(), "EXPERIMENTS": self._experiments.table_name}


class ResearchStack(Stack):
    """An 8B model on two nodes."""

    def __init__(self, scope: Construct, construct_id: str, **props: object) -> None:
        super().__init__(scope, construct_id, **props)  # type: ignore[arg-type]
        experiments = dynamodb.TableV2(
            self,
            "Experiments",
            partition_key=dynamodb.Attribute(name="name", type=dynamodb.AttributeType.STRING),
        )
        foundation = Foundation(
            self, "Foundation", availability_zone="us-west-2b", throughput_per_tib=500
        )
        TeamJob(
            self,
            "Pretrain",
            experiments=experiments,
            foundation=foundation,
            model=ModelShape.preset("llama-3.1-8b"),
            dataset_prefix="tokens",
            sequence_length=32_768,
            train_tokens=15_000_000_000,
            instance_count=2,
            max_runtime=Duration.days(2),
            hourly_price_usd=113.93,
            max_cost_usd=35_000,
        )


app = App()
ResearchStack(app, "Research", env=Environment(account="123456789012", region="us-west-2"))
app.synth()
