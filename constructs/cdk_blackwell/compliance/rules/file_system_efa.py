"""EFA for Lustre has conditions that fail late."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, is_intrinsic

STEP_GIB = 4_800


def check(templates: Templates) -> Iterator[Finding]:
    """EfaEnabled without PERSISTENT_2, metadata configuration or enough capacity."""
    for file_system in templates.resources("AWS::FSx::FileSystem"):
        if str(file_system.find("LustreConfiguration", "EfaEnabled")).lower() != "true":
            continue
        capacity = file_system.find("StorageCapacity")
        kind = file_system.find("LustreConfiguration", "DeploymentType")
        problems = []
        if kind != "PERSISTENT_2" and not is_intrinsic(kind):
            problems.append(f"DeploymentType is {kind}")
        if file_system.find("LustreConfiguration", "MetadataConfiguration") is None:
            problems.append("there is no MetadataConfiguration")
        if str(capacity).isdecimal() and int(str(capacity)) % STEP_GIB:
            problems.append(f"StorageCapacity is {capacity}")
        if problems:
            yield Finding(resource=file_system, found=f"EfaEnabled, but {'; '.join(problems)}")


RULE = Rule(
    id="FileSystemEfa",
    title=(
        "A file system with EFA is PERSISTENT_2, has metadata configuration and steps of 4,800 GiB."
    ),
    why=(
        "FSx refuses it in the middle of a deploy; and nothing says that SageMaker mounts "
        "Lustre over EFA at all."
    ),
    fix=(
        "Leave EfaEnabled out, or give it what it needs; metadata configuration can only be "
        "set at creation."
    ),
    severity="error",
    check=check,
)
