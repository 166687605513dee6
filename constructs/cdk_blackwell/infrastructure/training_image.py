"""The container image of a job, and what its role must be allowed to pull."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aws_cdk import Aws, Stack, Token
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from cdk_blackwell.compliance.aws_images import dlc_account
from cdk_blackwell.infrastructure.kinds import check_kinds

DEFAULT_REPOSITORY: Final = "pytorch"
DEFAULT_TAG: Final = "2.13-cu133-amzn2023-sagemaker"
URI_LENGTH: Final = 255

# The four parts may hold tokens, so only separators are judged.
_ECR_URI = re.compile(
    r"(?P<account>[^./]+|\$\{Token\[[^\]]+\]\})\.dkr\.ecr\.(?P<region>.+?)\."
    r"(?:amazonaws\.com(?:\.cn)?|\$\{Token\[[^\]]+\]\})/(?P<repository>[^:@]+)(?:[:@].+)?"
)


_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class TrainingImage:
    """An image by URI; ``repository_arn`` is None where it does not come from ECR."""

    uri: str
    repository_arn: str | None

    def __post_init__(self) -> None:
        check_kinds(TrainingImage.__init__, vars(self), tokens=("uri", "repository_arn"))

    @property
    def outside_ecr(self) -> bool:
        """Known to come from another registry, which is reached through the job's subnet."""
        return self.repository_arn is None and not Token.is_unresolved(self.uri)

    @classmethod
    def deep_learning_container(
        cls,
        scope: Construct,
        *,
        repository: str = DEFAULT_REPOSITORY,
        tag: str = DEFAULT_TAG,
        account: str | None = None,
    ) -> TrainingImage:
        """AWS's own PyTorch image in the stack's region.

        :param repository: of that registry. Default: ``pytorch``.
        :param tag: Default: PyTorch 2.13 with CUDA 13.3, patched by AWS until July 2027.
        :param account: registry of the images in this region. Default: the region's own where the
            CDK or this library knows it, else the one of most regions.
        """
        region = Stack.of(scope).region
        account = account or dlc_account(region)
        return cls(
            uri=f"{account}.dkr.ecr.{region}.{Aws.URL_SUFFIX}/{repository}:{tag}",
            repository_arn=f"arn:{Aws.PARTITION}:ecr:{region}:{account}:repository/{repository}",
        )

    @classmethod
    def from_ecr_repository(
        cls, repository: ecr.IRepository, tag_or_digest: str = "latest"
    ) -> TrainingImage:
        """An image of an own repository, also of another account's.

        The training role may pull from this repository only. A repository of another account must
        also let that role in by its own policy, which cannot be changed from here.

        :param tag_or_digest: ``sha256:...`` pins the very image, so that a run's later attempts
            cannot meet another one. Default: ``latest``.
        """
        check_kinds(TrainingImage.from_ecr_repository, locals(), tokens=("tag_or_digest",))
        if tag_or_digest.startswith("sha256:") and not _DIGEST.fullmatch(tag_or_digest):
            raise ValueError(
                f"image digest {tag_or_digest!r} is not usable: give sha256: and 64 hexadecimal "
                "digits"
            )
        if not Token.is_unresolved(tag_or_digest) and not (
            _DIGEST.fullmatch(tag_or_digest) or _TAG.fullmatch(tag_or_digest)
        ):
            raise ValueError(
                f"image tag {tag_or_digest!r} is not usable: give up to 128 letters, digits, "
                "underscores, dots and hyphens, or a digest, sha256:..."
            )
        return cls(
            uri=repository.repository_uri_for_tag_or_digest(tag_or_digest),
            repository_arn=repository.repository_arn,
        )

    @classmethod
    def from_uri(cls, uri: str) -> TrainingImage:
        """Any image; pull rights are granted where the URI is one of ECR.

        :param uri: ``registry/repository:tag`` or ``@sha256:...``, at most 255 characters.

        Any other registry is reached through the job's own subnet, which needs a way to it.
        ValueError for one that cannot be an image's, and for one that is known only at deploy as a
        whole (its parts may be).
        """
        check_kinds(TrainingImage.from_uri, locals(), tokens=("uri",))
        if not Token.is_unresolved(uri) and (
            len(uri) > URI_LENGTH or not re.fullmatch(r"\S+", uri)
        ):
            raise ValueError(
                f"image {uri!r} is not usable: give a URI of 1-{URI_LENGTH} characters "
                "without spaces"
            )
        match = _ECR_URI.fullmatch(uri)
        if match is None and Token.is_unresolved(uri):
            raise ValueError(
                "image is known only when the stack is deployed, so the training role cannot be "
                "allowed to pull it: use TrainingImage.from_ecr_repository(repository, tag), for a "
                "DockerImageAsset with its repository and image_tag, or "
                "TrainingImage(uri=..., repository_arn=...)"
            )
        arn = (
            f"arn:{Aws.PARTITION}:ecr:{match['region']}:{match['account']}"
            f":repository/{match['repository']}"
            if match
            else None
        )
        return cls(uri=uri, repository_arn=arn)
