"""Checks of capacity: quota, zone, training plan."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cdk_blackwell.cli.doctor.finding import Finding, Subject, failed, passed, warned

PLAN_STATES: Final = ("Active", "Scheduled")


def quota(subject: Subject) -> Finding:
    """The quota of the capacity mode covers the instances."""
    resources = subject.resources
    if "TrainingPlanArn" in resources:
        return passed("a training plan needs no quota of its own")
    spot = bool(subject.request.get("EnableManagedSpotTraining"))
    usage = "spot training job usage" if spot else "training job usage"
    name = f"{resources['InstanceType']} for {usage}"
    found = _quota(subject, name)
    count = int(resources["InstanceCount"])
    fix = f"ask for {count} or more at Service Quotas, Amazon SageMaker, {name!r}"
    if found is None:
        return warned(f"no quota {name!r} is listed", fix)
    value = float(found["Value"])
    if value < count:
        return failed(f"{name}: {value:g} allowed, {count} needed", fix)
    return passed(f"{name}: {value:g} allowed, {count} needed")


def zone(subject: Subject) -> Finding:
    """EC2 offers the instance in the subnet's zone."""
    kind = str(subject.resources["InstanceType"]).removeprefix("ml.")
    where = subject.subnet()["AvailabilityZone"]
    offered = subject.aws.client("ec2").describe_instance_type_offerings(
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": [kind]}],
    )["InstanceTypeOfferings"]
    zones = sorted(each["Location"] for each in offered)
    if where in zones:
        return passed(f"{kind} is offered in {where}")
    return warned(
        f"EC2 does not offer {kind} in {where}; it does in {', '.join(zones) or 'no zone here'}",
        "deploy a foundation in such a zone, unless a training plan names this one",
    )


def training_plan(subject: Subject) -> Finding:
    """The plan exists, holds enough instances in the subnet's zone, and has not ended."""
    arn = subject.resources.get("TrainingPlanArn")
    if arn is None:
        return passed("none is used")
    name = str(arn).rsplit("/", 1)[-1]
    plan = subject.aws.client("sagemaker").describe_training_plan(TrainingPlanName=name)
    fix = "choose another plan in the stack and deploy"
    if plan["Status"] not in PLAN_STATES:
        return failed(
            f"{name} is {plan['Status']}: {plan.get('StatusMessage', '')}".rstrip(": "), fix
        )
    end = plan.get("EndTime")
    if end is not None and end <= datetime.now(UTC):
        return failed(f"{name} ended at {end:%Y-%m-%d %H:%M} UTC", fix)
    count = int(subject.resources["InstanceCount"])
    if plan.get("TotalInstanceCount", 0) < count:
        return failed(
            f"{name} holds {plan.get('TotalInstanceCount', 0)} instances, {count} needed", fix
        )
    here = subject.subnet()["AvailabilityZone"]
    zones = {each.get("AvailabilityZone") for each in plan.get("ReservedCapacitySummaries", [])}
    if zones and here not in zones:
        return failed(
            f"{name} lies in {', '.join(sorted(map(str, zones)))}, the subnet in {here}",
            "deploy a foundation in the plan's zone",
        )
    until = "" if end is None else f", ends {end:%Y-%m-%d %H:%M} UTC"
    return passed(f"{name} is {plan['Status']}, {plan['TotalInstanceCount']} instances{until}")


def _quota(subject: Subject, name: str) -> Mapping[str, Any] | None:
    pages = subject.aws.client("service-quotas").get_paginator("list_service_quotas")
    for page in pages.paginate(ServiceCode="sagemaker"):
        for each in page["Quotas"]:
            if each["QuotaName"] == name:
                found: Mapping[str, Any] = each
                return found
    return None
