"""A private bucket: encrypted, TLS only, never public, kept when its stack goes."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

STALE_UPLOAD_DAYS = 7
"""An interrupted multipart upload of a checkpoint is invisible and billed until it is aborted."""
ACCESS_LOG_DAYS = 365
"""A year, so that an audit can look back; the lines of a training run are few beside its data."""


def private_bucket(
    scope: Construct,
    construct_id: str,
    *,
    encryption_key: kms.IKey,
    versioned: bool,
    noncurrent_days: int | None = None,
    access_logs: s3.IBucket | None = None,
    removal_policy: RemovalPolicy,
) -> s3.Bucket:
    """Make the bucket; ``versioned`` keeps overwritten objects, which are billed too.

    :param noncurrent_days: how long it keeps them, days. Default: for ever.
    :param access_logs: receives a line for every request, as ``access_log_bucket`` makes it.
        Default: requests are not logged.
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
    bucket = s3.Bucket(
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
    if access_logs is not None:
        resource = bucket.node.default_child
        assert isinstance(resource, s3.CfnBucket)
        # Not the L2's property: depending on a feature flag it writes an ACL, which a bucket that
        # enforces its owner refuses. The policy of the log bucket admits the delivery.
        resource.logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(
            destination_bucket_name=access_logs.bucket_name,
            log_file_prefix=f"{construct_id if construct_id != 'Bucket' else scope.node.id}/",
        )
        if access_logs.policy is not None:
            bucket.node.add_dependency(access_logs.policy)
    return bucket


def access_log_bucket(
    scope: Construct, construct_id: str, *, removal_policy: RemovalPolicy
) -> s3.Bucket:
    """Make a bucket for S3's server access logs: who read the dataset and the weights, and when.

    Encrypted by S3's own key, since log delivery takes no customer-managed key for its target.
    """
    bucket = s3.Bucket(
        scope,
        construct_id,
        encryption=s3.BucketEncryption.S3_MANAGED,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        removal_policy=removal_policy,
        lifecycle_rules=[
            s3.LifecycleRule(id="ExpireLogs", expiration=Duration.days(ACCESS_LOG_DAYS))
        ],
    )
    bucket.add_to_resource_policy(
        iam.PolicyStatement(
            sid="ServerAccessLogs",
            principals=[iam.ServicePrincipal("logging.s3.amazonaws.com")],
            actions=["s3:PutObject"],
            resources=[bucket.arn_for_objects("*")],
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}},
        )
    )
    return bucket
