"""The CloudFormation resource types that the embedded AWS knows."""

from __future__ import annotations

from cdk_blackwell.local.resources import (
    ec2,
    fsx,
    functions,
    iam,
    messaging,
    monitoring,
    s3,
    storage,
)
from cdk_blackwell.local.resources.resource_type import ResourceType


def resource_types() -> dict[str, ResourceType]:
    """Type name -> how it is made, changed and removed; custom resources are the engine's own."""
    modules = (ec2, fsx, functions, iam, messaging, monitoring, s3, storage)
    return {name: kind for module in modules for name, kind in module.TYPES.items()}
