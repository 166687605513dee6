"""Where parts lie: a job, its network, its files and its buckets belong together."""

from __future__ import annotations

from typing import Final

from aws_cdk import IResource, Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms

DATASET_REGION: Final = "FSx follows the objects of buckets in its own region only"
"""Why a dataset's bucket must lie where its file system does."""


def zone_of(subnet: ec2.ISubnet) -> str:
    """The subnet's availability zone; ValueError where its import does not say it."""
    try:
        return subnet.availability_zone
    except RuntimeError as error:
        raise ValueError(
            f"subnet {subnet.node.path} is imported without its availability zone: use "
            "ec2.Subnet.from_subnet_attributes(..., availability_zone=...)"
        ) from error


def differ(here: str, there: str) -> bool:
    """Whether both are known at synth and are not the same."""
    return not Token.is_unresolved(here) and not Token.is_unresolved(there) and here != there


def check_region(name: str, part: IResource, stack: Stack, why: str) -> None:
    """ValueError for a bucket or key of another region, where both are known at synth."""
    there = part.env.region
    if differ(there, stack.region):
        raise ValueError(
            f"{name} {part.node.path} is in {there}, the stack in {stack.region}: {why}; give one "
            f"in {stack.region}"
        )


def check_key_region(name: str, key: kms.IKey | None, stack: Stack) -> None:
    """The same for a key that may be missing."""
    if key is not None:
        check_region(name, key, stack, "S3, FSx, SNS and SageMaker use keys of their own region")


def check_reachable(name: str, part: IResource, part_id: str, stack: Stack) -> None:
    """ValueError for a part that no stack in this region or account could refer to.

    An id that is known at synth, as of an import, can be used anywhere in its region.
    """
    there = part.env
    if differ(there.region, stack.region):
        raise ValueError(
            f"{name} {part.node.path} is in {there.region}, the stack in {stack.region}: a job "
            "runs where its network and file system are; give both stacks one region"
        )
    if not Token.is_unresolved(part_id) or Stack.of(part) is stack:
        return
    if differ(there.account, stack.account):
        raise ValueError(
            f"{name} {part.node.path} is made in account {there.account}, the stack is in "
            f"{stack.account}: give both stacks one account, or import what is shared by its id"
        )
    for what, theirs, own in (
        ("region", there.region, stack.region),
        ("account", there.account, stack.account),
    ):
        if Token.is_unresolved(theirs) != Token.is_unresolved(own):
            raise ValueError(
                f"{name} {part.node.path} and {stack.node.path} do not agree on their {what}: one "
                "stack says it and the other leaves it to the command line; give both the same env"
            )
