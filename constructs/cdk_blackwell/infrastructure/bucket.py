"""A private bucket: encrypted, TLS only, never public, kept when its stack goes."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

STALE_UPLOAD_DAYS = 7
"""An interrupted multipart upload of a checkpoint is invisible and billed until it is aborted."""


def private_bucket(
    scope: Construct,
    construct_id: str,
    *,
    encryption_key: kms.IKey,
    versioned: bool,
    noncurrent_days: int | None = None,
    removal_policy: RemovalPolicy,
) -> s3.Bucket:
    """Make the bucket; ``versioned`` keeps overwritten objects, which are billed too.

    :param noncurrent_days: how long it keeps them, days. Default: for ever.
    """
    if noncurrent_days is not None and noncurrent_days < 1:
        raise ValueError(f"noncurrent_days {noncurrent_days} is not allowed: give 1 or more")
    rules = [
        s3.LifecycleRule(
            id="AbortStaleMultipartUploads",
            abort_incomplete_multipart_upload_after=Duration.days(STALE_UPLOAD_DAYS),
        )
    ]
    if noncurrent_days is not None:
        rules.append(
            s3.LifecycleRule(
                id="ExpireReplacedVersions",
                noncurrent_version_expiration=Duration.days(noncurrent_days),
                expired_object_delete_marker=True,
            )
        )
    return s3.Bucket(
        scope,
        construct_id,
        encryption=s3.BucketEncryption.KMS,
        encryption_key=encryption_key,
        bucket_key_enabled=True,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        versioned=versioned,
        removal_policy=removal_policy,
        lifecycle_rules=rules,
    )
