"""SNS, SQS and EventBridge resource types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.local.resources.resource_type import (
    ApiType,
    Context,
    Made,
    Properties,
    ResourceError,
    ResourceType,
    cannot_update,
    is_gone,
)
from cdk_blackwell.local.resources.shapes import to_shape


def _attribute_text(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- SNS -----------------------------------------------------------------------------------------

_TOPIC_ATTRIBUTES: Final = ("DisplayName", "KmsMasterKeyId", "SignatureVersion", "TracingConfig")


class _Topic(ApiType):
    """A topic with its attributes and the subscriptions written in it."""

    def create(self, context: Context, properties: Properties) -> Made:
        attributes = {
            name: _attribute_text(properties[name])
            for name in _TOPIC_ATTRIBUTES
            if name in properties
        }
        values = {key: value for key, value in properties.items() if key not in _TOPIC_ATTRIBUTES}
        made = super().create(context, {**values, "Attributes": attributes})
        name = made.physical_id.rsplit(":", 1)[1]
        return Made(
            physical_id=made.physical_id,
            attributes={"TopicArn": made.physical_id, "TopicName": name},
        )

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        changed = {
            key for key in old.keys() | properties.keys() if old.get(key) != properties.get(key)
        }
        if not changed <= set(_TOPIC_ATTRIBUTES):
            raise cannot_update(f"{context.type} ({', '.join(sorted(changed))})")
        for name in changed:
            context.client("sns").set_topic_attributes(
                TopicArn=made.physical_id,
                AttributeName=name,
                AttributeValue=_attribute_text(properties.get(name, "")),
            )
        return made


def _after_topic(context: Context, made: Made, properties: Properties) -> None:
    for subscription in properties.get("Subscription", []):
        context.client("sns").subscribe(
            TopicArn=made.physical_id,
            Protocol=subscription["Protocol"],
            Endpoint=subscription["Endpoint"],
        )


class _TopicPolicy:
    """AWS::SNS::TopicPolicy."""

    def create(self, context: Context, properties: Properties) -> Made:
        for arn in properties["Topics"]:
            context.client("sns").set_topic_attributes(
                TopicArn=arn,
                AttributeName="Policy",
                AttributeValue=json.dumps(properties["PolicyDocument"]),
            )
        return Made(physical_id=context.generate_name(), attributes={"Id": context.logical_id})

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        self.create(context, properties)
        return made

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        """SNS gives a topic whose policy goes its default one, which lets the owner do all."""
        for arn in properties["Topics"]:
            default = {
                "Version": "2008-10-17",
                "Id": "__default_policy_ID",
                "Statement": [
                    {
                        "Sid": "__default_statement_ID",
                        "Effect": "Allow",
                        "Principal": {"AWS": "*"},
                        "Action": ["SNS:Publish", "SNS:Subscribe", "SNS:GetTopicAttributes"],
                        "Resource": arn,
                        "Condition": {"StringEquals": {"AWS:SourceOwner": context.account}},
                    }
                ],
            }
            try:
                context.client("sns").set_topic_attributes(
                    TopicArn=arn, AttributeName="Policy", AttributeValue=json.dumps(default)
                )
            except ClientError as error:
                if not is_gone(error):
                    raise


_SUBSCRIPTION_ATTRIBUTES: Final = (
    "FilterPolicy",
    "FilterPolicyScope",
    "RawMessageDelivery",
    "RedrivePolicy",
)


def _after_subscription(context: Context, made: Made, properties: Properties) -> None:
    for name in _SUBSCRIPTION_ATTRIBUTES:
        if name in properties:
            context.client("sns").set_subscription_attributes(
                SubscriptionArn=made.physical_id,
                AttributeName=name,
                AttributeValue=_attribute_text(properties[name]),
            )


# --- SQS -----------------------------------------------------------------------------------------


class _Queue:
    """A queue; all its properties but name and tags are queue attributes."""

    def create(self, context: Context, properties: Properties) -> Made:
        sqs = context.client("sqs")
        fifo = str(properties.get("FifoQueue", "")).lower() == "true"
        name = properties.get("QueueName") or context.generate_name(limit=75)
        name = f"{name}.fifo" if fifo and not name.endswith(".fifo") else name
        tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}
        url = sqs.create_queue(QueueName=name, Attributes=self._attributes(properties), tags=tags)[
            "QueueUrl"
        ]
        arn = context.arn("sqs", name)
        return Made(physical_id=url, attributes={"Arn": arn, "QueueName": name, "QueueUrl": url})

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        names = ("QueueName", "FifoQueue", "Tags")
        if any(old.get(key) != properties.get(key) for key in names):
            raise cannot_update(f"{context.type} ({', '.join(names)})")
        context.client("sqs").set_queue_attributes(
            QueueUrl=made.physical_id, Attributes=self._attributes(properties)
        )
        return made

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        try:
            context.client("sqs").delete_queue(QueueUrl=made.physical_id)
        except ClientError as error:
            if not is_gone(error):
                raise

    def _attributes(self, properties: Properties) -> dict[str, str]:
        return {
            key: _attribute_text(value)
            for key, value in properties.items()
            if key not in ("QueueName", "Tags")
        }


class _QueuePolicy:
    """AWS::SQS::QueuePolicy."""

    def create(self, context: Context, properties: Properties) -> Made:
        self._put(context, properties, json.dumps(properties["PolicyDocument"]))
        return Made(physical_id=context.generate_name(), attributes={"Id": context.logical_id})

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        self.create(context, properties)
        return made

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        try:
            self._put(context, properties, "")
        except ClientError as error:
            if not is_gone(error):
                raise

    def _put(self, context: Context, properties: Properties, policy: str) -> None:
        for url in properties["Queues"]:
            context.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})


# --- EventBridge ---------------------------------------------------------------------------------


class _EventRule(ApiType):
    """A rule with its targets."""

    def create(self, context: Context, properties: Properties) -> Made:
        schedule = str(properties.get("ScheduleExpression", ""))
        if schedule and not schedule.startswith("rate("):
            raise ResourceError(
                f"the embedded AWS knows schedules as rate(...) only, got {schedule}"
            )
        return super().create(context, properties)

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        _remove_targets(context, made, old)
        return super().update(context, made, old, properties)


def _put_targets(context: Context, made: Made, properties: Properties) -> None:
    targets = properties.get("Targets")
    if targets:
        events = context.client("events")
        shape = events.meta.service_model.operation_model("PutTargets").input_shape
        events.put_targets(
            Rule=made.physical_id,
            Targets=to_shape(targets, shape.members["Targets"], "Targets"),
            **_bus(properties),
        )


def _remove_targets(context: Context, made: Made, properties: Properties) -> None:
    targets = [target["Id"] for target in properties.get("Targets", [])]
    if targets:
        try:
            context.client("events").remove_targets(
                Rule=made.physical_id, Ids=targets, **_bus(properties)
            )
        except ClientError as error:
            if not is_gone(error):
                raise


def _bus(properties: Properties) -> dict[str, str]:
    return {"EventBusName": properties["EventBusName"]} if "EventBusName" in properties else {}


TYPES: Final[Mapping[str, ResourceType]] = {
    "AWS::SNS::Topic": _Topic(
        service="sns",
        create_call="create_topic",
        physical_id="output.TopicArn",
        name="Name",
        rename={"TopicName": "Name"},
        apart=("Subscription",),
        after=_after_topic,
        delete_call="delete_topic",
        delete_input={"TopicArn": "{id}"},
    ),
    "AWS::SNS::TopicPolicy": _TopicPolicy(),
    "AWS::SNS::Subscription": ApiType(
        service="sns",
        create_call="subscribe",
        physical_id="output.SubscriptionArn",
        attributes={"Arn": "output.SubscriptionArn"},
        apart=_SUBSCRIPTION_ATTRIBUTES,
        fixed={"ReturnSubscriptionArn": True},
        after=_after_subscription,
        delete_call="unsubscribe",
        delete_input={"SubscriptionArn": "{id}"},
    ),
    "AWS::SQS::Queue": _Queue(),
    "AWS::SQS::QueuePolicy": _QueuePolicy(),
    "AWS::Events::Rule": _EventRule(
        service="events",
        create_call="put_rule",
        physical_id="input.Name",
        attributes={"Arn": "output.RuleArn"},
        name="Name",
        name_limit=64,
        apart=("Targets",),
        put=True,
        after=_put_targets,
        before_delete=_remove_targets,
        delete_call="delete_rule",
        delete_input={"Name": "{id}"},
    ),
}
