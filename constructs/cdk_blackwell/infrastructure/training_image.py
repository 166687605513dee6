"""The container image of a job, and what its role must be allowed to pull."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aws_cdk import Aws, Stack, Token
from aws_cdk import aws_ecr as ecr
from constructs import Construct

DEEP_LEARNING_CONTAINERS_ACCOUNT: Final = "763104351884"
"""Account of AWS's Deep Learning Containers in most regions; some regions have their own."""
DEFAULT_REPOSITORY: Final = "pytorch"
DEFAULT_TAG: Final = "2.13-cu133-amzn2023-sagemaker"
URI_LENGTH: Final = 255

# The four parts may hold tokens, so only separators are judged.
_ECR_URI = re.compile(
    r"(?P<account>[^./]+|\$\{Token\[[^\]]+\]\})\.dkr\.ecr\.(?P<region>.+?)\."
    r"(?:amazonaws\.com(?:\.cn)?|\$\{Token\[[^\]]+\]\})/(?P<repository>[^:@]+)(?:[:@].+)?"
)


@dataclass(frozen=True, kw_only=True)
class TrainingImage:
    """An image by URI; ``repository_arn`` is None where it does not come from ECR."""

    uri: str
    repository_arn: str | None

    @classmethod
    def deep_learning_container(
        cls,
        scope: Construct,
        *,
        repository: str = DEFAULT_REPOSITORY,
        tag: str = DEFAULT_TAG,
        account: str = DEEP_LEARNING_CONTAINERS_ACCOUNT,
    ) -> TrainingImage:
        """AWS's own PyTorch image in the stack's region.

        :param account: registry of the images in this region. Default: the one of most regions.
        """
        region = Stack.of(scope).region
        return cls(
            uri=f"{account}.dkr.ecr.{region}.{Aws.URL_SUFFIX}/{repository}:{tag}",
            repository_arn=f"arn:{Aws.PARTITION}:ecr:{region}:{account}:repository/{repository}",
        )

    @classmethod
    def from_ecr_repository(
        cls, repository: ecr.IRepository, tag_or_digest: str = "latest"
    ) -> TrainingImage:
        """An image of an own repository."""
        return cls(
            uri=repository.repository_uri_for_tag_or_digest(tag_or_digest),
            repository_arn=repository.repository_arn,
        )

    @classmethod
    def from_uri(cls, uri: str) -> TrainingImage:
        """Any image; pull rights are granted where the URI is one of ECR."""
        if not Token.is_unresolved(uri) and (
            len(uri) > URI_LENGTH or not re.fullmatch(r"\S+", uri)
        ):
            raise ValueError(
                f"image {uri!r} is not usable: give a URI of 1-{URI_LENGTH} characters "
                "without spaces"
            )
        match = _ECR_URI.fullmatch(uri)
        arn = (
            f"arn:{Aws.PARTITION}:ecr:{match['region']}:{match['account']}"
            f":repository/{match['repository']}"
            if match
            else None
        )
        return cls(uri=uri, repository_arn=arn)
