"""Local NVMe is encrypted by hardware, and SageMaker takes no key for it."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.instance_types import NVME_FAMILIES, family
from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """VolumeKmsKeyId on a type with local NVMe."""
    for request in training_requests(templates):
        key = request.find("ResourceConfig", "VolumeKmsKeyId")
        if key is not None and family(request.instance_type) in NVME_FAMILIES:
            yield Finding(
                resource=request.resource,
                found=f"VolumeKmsKeyId is given for {request.instance_type}",
                where=f"{request.where}/ResourceConfig/VolumeKmsKeyId",
            )


RULE = Rule(
    id="VolumeKey",
    title="VolumeKmsKeyId is not given for instance types with local NVMe.",
    why=(
        "SageMaker refuses the request at launch; the local disks are encrypted by the "
        "instance's hardware in any case."
    ),
    fix="Leave VolumeKmsKeyId out, and encrypt outputs with OutputDataConfig.KmsKeyId.",
    severity="error",
    check=check,
)
