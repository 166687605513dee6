"""A run every Sunday night, a message by mail, and a function of one's own for failed runs."""

from __future__ import annotations

from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from cdk_blackwell import Foundation, ModelShape, SmallModelJob

PAGE_SOMEBODY = """
def handler(event, context):
    run = event["detail"]
    print(f"{run['job']} {run['run_id']} {run['what']}: {run['why']} {run['console']}")
"""


class ScheduledStack(Stack):
    """A 1B model, trained anew on what the week brought."""

    def __init__(self, scope: Construct, construct_id: str, **props: object) -> None:
        super().__init__(scope, construct_id, **props)  # type: ignore[arg-type]
        job = SmallModelJob(
            self,
            "Weekly",
            foundation=Foundation(self, "Foundation", availability_zone="us-west-2b"),
            model=ModelShape.preset("llama-3.2-1b"),
            dataset_prefix="tokens",
            sequence_length=8192,
            train_tokens=2_000_000_000,
            max_runtime=Duration.hours(6),
            hourly_price_usd=113.93,
            max_cost_usd=2_300,
        )
        job.controller.add_schedule(
            "Sunday",
            name="weekly",
            schedule=events.Schedule.cron(week_day="SUN", hour="2", minute="0"),
        )
        job.monitoring.topic.add_subscription(
            subscriptions.EmailSubscription("training@example.com")
        )
        page = lambda_.Function(
            self,
            "Page",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_inline(PAGE_SOMEBODY),
        )
        job.on_run_event(
            "Failed",
            target=targets.LambdaFunction(page),
            happenings=["failed", "could not be launched"],
        )


app = App()
ScheduledStack(app, "Scheduled", env=Environment(account="123456789012", region="us-west-2"))
app.synth()
