"""What SageMaker refuses at CreateTrainingJob, and with which words.

Shapes, lengths, patterns and enums come from SageMaker's own model as botocore carries it; below
are the rules between members that the model cannot express. Sources: API reference of
CreateTrainingJob, and for VolumeKmsKeyId the rule that instance types with local NVMe refuse it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cdk_blackwell.compliance.service_model import check_training_request

DEFAULT_MAX_RUNTIME_SECONDS: Final = 86_400
LOCAL_NVME_INSTANCE_FAMILIES: Final = (
    "ml.p4d.",
    "ml.p4de.",
    "ml.p5.",
    "ml.p5e.",
    "ml.p5en.",
    "ml.p6-",
    "ml.g5.",
    "ml.g6.",
)
"""Families with hardware-encrypted local NVMe, which take no VolumeKmsKeyId."""


INSTANCE_LIMIT: Final = 1
"""Instances per job that the embedded AWS runs; a quota, so it is told as one."""


def instance_count(request: Mapping[str, Any]) -> int:
    """Instances that an accepted request asks for."""
    resources = request["ResourceConfig"]
    groups = resources.get("InstanceGroups") or resources.get("InstancePreferences") or []
    counts = [int(group.get("InstanceCount", 1)) for group in groups]
    return int(resources.get("InstanceCount", 0)) or sum(counts)


def validation_message(request: Mapping[str, Any]) -> str | None:
    """The text of SageMaker's ValidationException for ``request``, or None when it is accepted."""
    problems = [
        f"Value '{problem.got}' at '{problem.where}' failed to satisfy constraint: "
        f"Member must satisfy: {problem.allowed}"
        for problem in check_training_request(dict(request))
    ] or list(_rules_between_members(request))
    if not problems:
        return None
    noun = "error" if len(problems) == 1 else "errors"
    return f"{len(problems)} validation {noun} detected: {'; '.join(problems)}"


def _rules_between_members(request: Mapping[str, Any]) -> Iterator[str]:
    resources = request["ResourceConfig"]
    yield from _resource_rules(resources)
    yield from _time_rules(request, resources)
    algorithm = request.get("AlgorithmSpecification", {})
    if ("TrainingImage" in algorithm) == ("AlgorithmName" in algorithm):
        yield "AlgorithmSpecification needs exactly one of TrainingImage and AlgorithmName"
    for metric in algorithm.get("MetricDefinitions", []):
        try:
            re.compile(metric["Regex"])
        except re.error as error:
            yield f"Regex {metric['Regex']!r} of metric {metric['Name']!r} is not valid: {error}"
    names = Counter(channel["ChannelName"] for channel in request.get("InputDataConfig", []))
    for name, count in names.items():
        if count > 1:
            yield f"ChannelName {name!r} is given {count} times in InputDataConfig; give it once"


def _resource_rules(resources: Mapping[str, Any]) -> Iterator[str]:
    ways = [
        way for way in ("InstanceType", "InstanceGroups", "InstancePreferences") if way in resources
    ]
    if len(ways) != 1:
        yield (
            "ResourceConfig needs exactly one of InstanceType, InstanceGroups and "
            f"InstancePreferences; it has {', '.join(ways) or 'none'}"
        )
    if "InstanceType" in resources and "InstanceCount" not in resources:
        yield "ResourceConfig with InstanceType needs InstanceCount"
    instance_type = resources.get("InstanceType", "")
    if "VolumeKmsKeyId" in resources and instance_type.startswith(LOCAL_NVME_INSTANCE_FAMILIES):
        yield (
            f"VolumeKmsKeyId is not supported for {instance_type}: its local NVMe storage is "
            "encrypted by the hardware; leave VolumeKmsKeyId out"
        )


def _time_rules(request: Mapping[str, Any], resources: Mapping[str, Any]) -> Iterator[str]:
    stopping = request.get("StoppingCondition", {})
    spot = request.get("EnableManagedSpotTraining", False)
    longest_run = stopping.get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME_SECONDS)
    longest_wait = stopping.get("MaxWaitTimeInSeconds")
    if longest_wait is not None and not spot:
        yield "MaxWaitTimeInSeconds is only for EnableManagedSpotTraining"
    if spot and (longest_wait is None or longest_wait < longest_run):
        yield (
            f"EnableManagedSpotTraining needs MaxWaitTimeInSeconds of at least "
            f"MaxRuntimeInSeconds ({longest_run}); it is {longest_wait}"
        )
    if spot and resources.get("KeepAlivePeriodInSeconds"):
        yield "KeepAlivePeriodInSeconds does not combine with EnableManagedSpotTraining"
