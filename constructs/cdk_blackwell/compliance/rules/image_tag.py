"""The image of tomorrow should be the image of today."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cdk_blackwell.compliance.requests import is_plain, training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Images by 'latest' or without any tag or digest."""
    for request in training_requests(templates):
        image = request.find("AlgorithmSpecification", "TrainingImage")
        text = image if is_plain(image) else _last_text(image)
        name = text.rsplit("/", 1)[-1]
        if text and (name.endswith(":latest") or not set(":@") & set(name)):
            yield Finding(
                resource=request.resource,
                found=f"the image is {name}",
                where=f"{request.where}/AlgorithmSpecification/TrainingImage",
            )


def _last_text(image: Any) -> str:
    parts = image["Fn::Join"][1] if isinstance(image, dict) and "Fn::Join" in image else [None]
    return parts[-1] if isinstance(parts[-1], str) else ""


RULE = Rule(
    id="ImageTag",
    title="The training image is pinned by a tag or a digest.",
    why=(
        "A resumed attempt would run on whatever was pushed in between, with other kernels "
        "and other numerics."
    ),
    fix="Pin the image: a version tag, better the digest.",
    severity="warning",
    check=check,
)
