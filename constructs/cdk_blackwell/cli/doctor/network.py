"""Checks of the network: free addresses, the file system's zone and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cdk_blackwell.cli.doctor.finding import Finding, Subject, failed, passed

ADDRESSES_PER_INSTANCE: Final = 2
"""SageMaker's documentation asks for at least two."""


def addresses(subject: Subject) -> Finding:
    """The subnet has enough free addresses."""
    subnet = subject.subnet()
    free = int(subnet["AvailableIpAddressCount"])
    needed = ADDRESSES_PER_INSTANCE * int(subject.resources["InstanceCount"])
    text = f"{subnet['SubnetId']} has {free} free addresses, {needed} needed"
    if free < needed:
        return failed(text, "free some (ended jobs give theirs back), or use a larger subnet")
    return passed(text)


def file_system(subject: Subject) -> Finding:
    """Every file system that the job mounts is available and in the job's zone."""
    ids = _file_systems(subject)
    if not ids:
        return passed("the job mounts none")
    here = subject.subnet()["AvailabilityZone"]
    found = subject.aws.client("fsx").describe_file_systems(FileSystemIds=ids)["FileSystems"]
    for each in found:
        name, state = each["FileSystemId"], each["Lifecycle"]
        if state != "AVAILABLE":
            return failed(f"{name} is {state}", "wait until it is AVAILABLE, or see its events")
        subnets = subject.aws.client("ec2").describe_subnets(SubnetIds=each["SubnetIds"][:1])
        there = subnets["Subnets"][0]["AvailabilityZone"]
        if there != here:
            return failed(
                f"{name} lies in {there}, the job in {here}",
                "put both into one zone: traffic between zones is slow and billed",
            )
    return passed(f"{', '.join(ids)} available in {here}")


def _file_systems(subject: Subject) -> Sequence[str]:
    sources = [each["DataSource"] for each in subject.request.get("InputDataConfig", [])]
    ids = [
        each["FileSystemDataSource"]["FileSystemId"]
        for each in sources
        if "FileSystemDataSource" in each
    ]
    return sorted(set(ids))
