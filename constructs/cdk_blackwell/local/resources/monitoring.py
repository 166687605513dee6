"""CloudWatch and CloudWatch Logs resource types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdk_blackwell.local.resources.resource_type import (
    ApiType,
    Context,
    Made,
    Properties,
    ResourceType,
    cannot_update,
)


def _retention(context: Context, made: Made, properties: Properties) -> None:
    if "RetentionInDays" in properties:
        context.client("logs").put_retention_policy(
            logGroupName=made.physical_id, retentionInDays=int(properties["RetentionInDays"])
        )


class _LogGroup(ApiType):
    """Only the retention can change."""

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        if {**old, "RetentionInDays": 0} != {**properties, "RetentionInDays": 0}:
            raise cannot_update(f"{context.type} (other than RetentionInDays)")
        _retention(context, made, properties)
        return made


TYPES: Final[Mapping[str, ResourceType]] = {
    "AWS::Logs::LogGroup": _LogGroup(
        service="logs",
        create_call="create_log_group",
        physical_id="input.logGroupName",
        attributes={"Arn": "=arn:aws:logs:{region}:{account}:log-group:{id}:*"},
        name="logGroupName",
        apart=("RetentionInDays",),
        after=_retention,
        delete_call="delete_log_group",
        delete_input={"logGroupName": "{id}"},
    ),
    "AWS::Logs::MetricFilter": ApiType(
        service="logs",
        create_call="put_metric_filter",
        physical_id="input.filterName",
        name="filterName",
        put=True,
        delete_call="delete_metric_filter",
        delete_input={"filterName": "{id}", "logGroupName": "{LogGroupName}"},
    ),
    "AWS::CloudWatch::Alarm": ApiType(
        service="cloudwatch",
        create_call="put_metric_alarm",
        physical_id="input.AlarmName",
        attributes={"Arn": "=arn:aws:cloudwatch:{region}:{account}:alarm:{id}"},
        name="AlarmName",
        put=True,
        delete_call="delete_alarms",
        delete_input={"AlarmNames": ["{id}"]},
    ),
    "AWS::CloudWatch::Dashboard": ApiType(
        service="cloudwatch",
        create_call="put_dashboard",
        physical_id="input.DashboardName",
        name="DashboardName",
        put=True,
        delete_call="delete_dashboards",
        delete_input={"DashboardNames": ["{id}"]},
    ),
}
