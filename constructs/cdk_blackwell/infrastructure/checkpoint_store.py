"""The bucket that holds every run: frozen bundle, checkpoints, progress and export."""

from __future__ import annotations

from typing import Final, Protocol

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_blackwell.infrastructure.bucket import private_bucket
from cdk_blackwell.infrastructure.encryption import StorageKey
from cdk_blackwell.infrastructure.kinds import check_kinds
from cdk_blackwell.infrastructure.places import check_key_region
from cdk_blackwell.infrastructure.removal import KEPT

NONCURRENT_DAYS: Final = 7


class ICheckpointStore(Protocol):
    """A bucket for runs and the key of its objects, however it came to be."""

    @property
    def bucket(self) -> s3.IBucket:
        """Holds ``<job>/runs/<run_id>/``."""
        ...

    @property
    def encryption_key(self) -> kms.IKey | None:
        """Key of the bucket's objects; None for a bucket encrypted by S3's own key."""
        ...

    def grant_read(self, grantee: iam.IGrantable, job: str) -> iam.Grant:
        """Let ``grantee`` list and read one job's runs."""
        ...


class _CheckpointStore:
    """What new and imported stores share."""

    bucket: s3.IBucket

    def grant_read(self, grantee: iam.IGrantable, job: str) -> iam.Grant:
        """Let ``grantee`` list and read the runs of one job (its prefix), and decrypt them."""
        return self.bucket.grant_read(grantee, f"{job}/runs/*")


class CheckpointStore(Construct, _CheckpointStore):
    """A new bucket for runs: encrypted, TLS only, never public.

    No lifecycle rule removes current objects: S3 judges by age alone and would in time take the
    newest complete checkpoint of a run that stands still. What is removed by itself is what nobody
    can read any more: upload parts that were never completed, and, of a versioned bucket, versions
    that were replaced or deleted ``noncurrent_days`` ago.

    :param encryption_key: encrypts the objects. Default: a new key.
    :param versioned: keep overwritten and deleted objects for a time. Default: no, because pruned
        checkpoints would stay and be billed (about 12 bytes a parameter each).
    :param noncurrent_days: how long a versioned bucket keeps them, days. Default: 7.
    :param access_logs: bucket that receives a line for every request; its policy must admit
        ``logging.s3.amazonaws.com``. Default: requests are not logged.
    :param removal_policy: what happens when the stack goes. Default: the bucket stays.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        encryption_key: kms.IKey | None = None,
        versioned: bool = False,
        noncurrent_days: int | None = None,
        access_logs: s3.IBucket | None = None,
        removal_policy: RemovalPolicy = KEPT,
    ) -> None:
        check_kinds(CheckpointStore.__init__, locals())
        super().__init__(scope, construct_id)
        if noncurrent_days is not None and not versioned:
            raise ValueError(
                f"noncurrent_days {noncurrent_days} is given for a bucket that is not versioned: "
                "set versioned, or leave noncurrent_days out"
            )
        check_key_region("encryption_key", encryption_key, Stack.of(self))
        key = encryption_key or StorageKey(self, "StorageKey").key
        self.encryption_key: kms.IKey | None = key
        self.bucket: s3.IBucket = private_bucket(
            self,
            "Bucket",
            encryption_key=key,
            versioned=versioned,
            noncurrent_days=noncurrent_days or (NONCURRENT_DAYS if versioned else None),
            access_logs=access_logs,
            removal_policy=removal_policy,
        )

    @staticmethod
    def from_bucket(bucket: s3.IBucket) -> ICheckpointStore:
        """Use an existing bucket; its ``encryption_key`` is used where the import names one."""
        check_kinds(CheckpointStore.from_bucket, locals())
        return _ImportedCheckpointStore(bucket)


class _ImportedCheckpointStore(_CheckpointStore):
    def __init__(self, bucket: s3.IBucket) -> None:
        self.bucket = bucket
        self.encryption_key: kms.IKey | None = bucket.encryption_key
