"""A folder of a bucket, as one value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aws_cdk import aws_s3 as s3

from cdk_blackwell.infrastructure.kinds import check_kinds, refuse_token

_FOLDERS = re.compile(r"(?:[A-Za-z0-9!_.'()-]+/)*")
"""Characters that S3 calls safe in keys, without ``*``, which a policy would take for any text."""

LONGEST_PREFIX = 900


def normalise_prefix(name: str, prefix: str) -> str:
    """``tokens`` and ``tokens/`` both give ``tokens/``; the empty prefix is the whole bucket.

    ValueError, with the parameter's ``name``, for what is not folders of plain characters.
    """
    refuse_token(name, prefix)
    normal = prefix if prefix in ("", "/") or prefix.endswith("/") else f"{prefix}/"
    normal = "" if normal == "/" else normal
    parts = normal.split("/")
    if not _FOLDERS.fullmatch(normal) or ".." in parts or "." in parts:
        raise ValueError(
            f"{name} {prefix!r} is not usable: give folders of letters, digits and "
            "!_.'()- separated by single slashes, without one at the start, for example tokens/"
        )
    if len(normal) > LONGEST_PREFIX:
        raise ValueError(
            f"{name} has {len(normal)} characters; give at most {LONGEST_PREFIX}, since S3's keys "
            "have 1,024 and objects below it need names too"
        )
    return normal


@dataclass(frozen=True, kw_only=True)
class S3Prefix:
    """Objects of ``bucket`` whose keys begin with ``prefix``."""

    bucket: s3.IBucket
    prefix: str = ""
    """Folders; a slash is added at the end where it lacks. Default: the whole bucket."""

    def __post_init__(self) -> None:
        check_kinds(S3Prefix.__init__, {"bucket": self.bucket, "prefix": self.prefix})
        object.__setattr__(self, "prefix", normalise_prefix("prefix", self.prefix))

    @property
    def uri(self) -> str:
        """``s3://bucket/prefix/``."""
        return f"s3://{self.bucket.bucket_name}/{self.prefix}"
