"""Compressing a large model takes longer than training a small one."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.instance_types import BLACKWELL_FAMILIES, family
from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, is_intrinsic


def check(templates: Templates) -> Iterator[Finding]:
    """Blackwell instances that would wait for a tar.gz."""
    for request in training_requests(templates):
        if family(request.instance_type) not in BLACKWELL_FAMILIES:
            continue
        compression = request.find("OutputDataConfig", "CompressionType")
        if compression != "NONE" and not is_intrinsic(compression):
            yield Finding(
                resource=request.resource,
                found=f"CompressionType is {compression or 'left to its default, GZIP'}",
                where=f"{request.where}/OutputDataConfig/CompressionType",
            )


RULE = Rule(
    id="OutputCompression",
    title="Models leave Blackwell instances uncompressed.",
    why=(
        "One core makes the tar.gz while eight GPUs an instance are billed: hours for a model"
        " of 64B parameters."
    ),
    fix="Set OutputDataConfig.CompressionType to NONE.",
    severity="warning",
    check=check,
)
