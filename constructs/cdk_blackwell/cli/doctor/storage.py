"""Checks of what is stored: image, dataset, buckets and keys."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.cli.doctor.finding import Finding, Subject, failed, passed, warned

_IMAGE: Final = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/"
    r"(?P<repository>[^:@]+)(?:@(?P<digest>sha256:[0-9a-f]+)|:(?P<tag>[^@]+))"
)


def image(subject: Subject) -> Finding:
    """The image can be pulled from its registry."""
    uri = str(subject.request["AlgorithmSpecification"]["TrainingImage"])
    parts = _IMAGE.fullmatch(uri)
    if parts is None:
        return warned(f"{uri} is not in ECR, so it was not looked at", "see that it can be pulled")
    wanted = {"imageDigest": parts["digest"]} if parts["digest"] else {"imageTag": parts["tag"]}
    try:
        found = subject.aws.client("ecr").batch_get_image(
            registryId=parts["account"], repositoryName=parts["repository"], imageIds=[wanted]
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "RepositoryNotFoundException":
            raise
        return failed(f"{uri}: there is no such repository", "give the job another image")
    if not found.get("images"):
        return failed(f"{uri}: there is no such image", "give the job another image")
    return passed(uri.rsplit("/", 1)[-1])


def dataset(subject: Subject) -> Finding:
    """The manifest and the first file that it lists exist."""
    manifest = subject.definition.dataset_manifest
    uri = f"s3://{manifest.bucket}/{manifest.key}"
    fix = f"make it with prepare_data.py and upload it to {uri.rsplit('/', 1)[0]}/"
    client = subject.aws.client("s3")
    try:
        body = client.get_object(Bucket=manifest.bucket, Key=manifest.key)["Body"].read()
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("NoSuchKey", "NoSuchBucket", "404"):
            raise
        return failed(f"{uri} does not exist", fix)
    try:
        files = [shard["file"] for shard in _shards(json.loads(body))]
    except (ValueError, KeyError, TypeError, AttributeError):
        return failed(f"{uri} is not a manifest", fix)
    root = manifest.key.rsplit("/", 1)[0] + "/" if "/" in manifest.key else ""
    for name in files[:1]:
        try:
            client.head_object(Bucket=manifest.bucket, Key=root + name)
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("404", "NoSuchKey", "NotFound"):
                raise
            return failed(f"{uri} lists {name}, which is not there", fix)
    return passed(f"{uri} with {len(files)} shards" if files else f"{uri}, a mixture")


def bucket_policies(subject: Subject) -> Finding:
    """No bucket of the job is open to the public."""
    client = subject.aws.client("s3")
    output = subject.job.output
    buckets = sorted({output.checkpoint_bucket, output.dataset_bucket})
    for name in buckets:
        try:
            public = client.get_bucket_policy_status(Bucket=name)["PolicyStatus"]["IsPublic"]
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "NoSuchBucket":
                return failed(f"bucket {name} does not exist", "deploy the foundation again")
            if code == "NoSuchBucketPolicy":
                return warned(
                    f"bucket {name} has no policy, so it takes requests without TLS",
                    "let the foundation make it, or add a policy that denies them",
                )
            raise
        if public:
            return failed(f"bucket {name} is public", "remove the statement that makes it so")
    return passed(f"{', '.join(buckets)} not public")


def keys(subject: Subject) -> Finding:
    """Every key that the buckets are encrypted with is enabled."""
    client, output = subject.aws.client("s3"), subject.job.output
    found = set()
    for bucket in sorted({output.checkpoint_bucket, output.dataset_bucket}):
        rules = client.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]
        for rule in rules["Rules"]:
            key = rule.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID")
            found |= {key} if key else set()
    for key in sorted(found):
        state = subject.aws.client("kms").describe_key(KeyId=key)["KeyMetadata"]["KeyState"]
        if state != "Enabled":
            return failed(f"key {key} is {state}", "enable it, or cancel its deletion")
    return passed(f"{len(found)} customer key(s), enabled" if found else "S3's own keys")


def _shards(manifest: Any) -> Sequence[dict[str, Any]]:
    if manifest.get("mixture"):
        return []
    shards: Sequence[dict[str, Any]] = manifest["splits"]["train"]
    return shards
