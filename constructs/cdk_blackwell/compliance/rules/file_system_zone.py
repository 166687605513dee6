"""All instances of a job land in one zone, and so must its file system."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Resource, Templates


def check(templates: Templates) -> Iterator[Finding]:
    """A job whose subnets are known to be in other zones than its file system."""
    for request in training_requests(templates):
        subnets = [templates.target(value, request.resource.template) for value in request.subnets]
        if not subnets or None in subnets:
            continue
        for source in request.file_systems:
            file_system = templates.target(source.get("FileSystemId"), request.resource.template)
            home = _subnet_of(templates, file_system) if file_system else None
            if home is None:
                continue
            apart = [subnet for subnet in subnets if subnet and _apart(templates, subnet, home)]
            if len(apart) == len(subnets):
                yield Finding(
                    resource=request.resource,
                    found=f"the job's subnet is in {apart[0].find('AvailabilityZone')}, the file "
                    f"system {file_system.logical_id if file_system else ''} in "
                    f"{home.find('AvailabilityZone')}",
                    where=f"{request.where}/VpcConfig/Subnets",
                )


def _subnet_of(templates: Templates, file_system: Resource) -> Resource | None:
    subnets = file_system.find("SubnetIds")
    if not isinstance(subnets, list) or not subnets:
        return None
    return templates.target(subnets[0], file_system.template)


def _apart(templates: Templates, one: Resource, other: Resource) -> bool:
    """Known to be in different zones: two names, or two places in one list of zones."""
    here, there = one.find("AvailabilityZone"), other.find("AvailabilityZone")
    if isinstance(here, str) and isinstance(there, str):
        return here != there
    match here, there:
        case {"Fn::Select": [place, zones]}, {"Fn::Select": [other_place, other_zones]}:
            return zones == other_zones and str(place) != str(other_place)
        case _:
            return False


RULE = Rule(
    id="FileSystemZone",
    title="A job runs in the zone of its file system.",
    why=(
        "FSx for Lustre lies in one zone; a job elsewhere pays for every byte between zones, "
        "gets a fraction of the throughput, and SageMaker may refuse the mount."
    ),
    fix=(
        "Give the job a subnet in the file system's zone, which must also be the zone of the "
        "training plan."
    ),
    severity="error",
    check=check,
)
