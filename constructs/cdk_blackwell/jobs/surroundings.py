"""What a job stands on: a foundation, parts given one by one, or a mixture of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import IDependable

from cdk_blackwell.infrastructure.checkpoint_store import ICheckpointStore
from cdk_blackwell.infrastructure.file_system import ISharedFileSystem
from cdk_blackwell.infrastructure.foundation import IFoundation


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The parts of one job's surroundings, wherever each came from."""

    vpc: ec2.IVpc
    subnet: ec2.ISubnet
    file_system: ISharedFileSystem
    checkpoint_store: ICheckpointStore
    encryption_key: kms.IKey | None
    """Encrypts exports and notifications."""
    ready: list[IDependable]
    """What must outlive the job: the file system's association and rules, the endpoints."""


def find_surroundings(
    foundation: IFoundation | None,
    *,
    vpc: ec2.IVpc | None,
    subnet: ec2.ISubnet | None,
    file_system: ISharedFileSystem | None,
    checkpoint_store: ICheckpointStore | None,
    encryption_key: kms.IKey | None,
) -> Surroundings:
    """Each part as given, else the foundation's; ValueError names the first that is missing."""
    network: ec2.IVpc = _given("vpc", vpc, foundation)
    files: ISharedFileSystem = _given("file_system", file_system, foundation)
    store: ICheckpointStore = _given("checkpoint_store", checkpoint_store, foundation)
    return Surroundings(
        vpc=network,
        subnet=_given("subnet", subnet, foundation),
        file_system=files,
        checkpoint_store=store,
        encryption_key=(
            encryption_key
            or (foundation.encryption_key if foundation else None)
            or store.encryption_key
        ),
        ready=[*files.ready, *(foundation.ready if foundation else [])],
    )


def distinct_keys(*keys: kms.IKey | None) -> list[kms.IKey]:
    """The keys that are there, each once."""
    distinct: list[kms.IKey] = []
    for key in keys:
        if key is not None and all(key.key_arn != other.key_arn for other in distinct):
            distinct.append(key)
    return distinct


def _given(name: str, value: Any, foundation: IFoundation | None) -> Any:
    if value is not None:
        return value
    if foundation is not None:
        return getattr(foundation, name)
    raise ValueError(
        f"{name} is missing: give foundation=..., or all of vpc, subnet, file_system and "
        "checkpoint_store"
    )
