"""The one customer-managed key of data at rest, and what AWS's own services need of any key."""

from __future__ import annotations

import weakref
from typing import Final

from aws_cdk import Annotations, Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from cdk_blackwell.infrastructure.removal import KEPT

DATA_REPOSITORY_ACTIONS: Final = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
)
"""What FSx does with the key of a bucket that it reads from and exports to."""

_admitted: weakref.WeakSet[kms.IKey] = weakref.WeakSet()
"""Keys that already admit FSx: one file system links several buckets of one key."""


def data_repository_statement(account: str) -> iam.PolicyStatement:
    """Lets FSx move objects between Lustre and buckets encrypted by the key this is added to.

    FSx uses a service-linked role of its own for each file system. The role's name ends in the file
    system's id, which does not exist yet: a pattern, and only within this account.
    """
    return iam.PolicyStatement(
        sid="FsxDataRepository",
        principals=[iam.AnyPrincipal()],
        actions=list(DATA_REPOSITORY_ACTIONS),
        resources=["*"],
        conditions={
            "StringEquals": {"kms:CallerAccount": account},
            "ArnLike": {
                "aws:PrincipalArn": f"arn:{Aws.PARTITION}:iam::{account}:role/"
                "aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/"
                "AWSServiceRoleForFSxS3Access_*"
            },
        },
    )


def admit_data_repository(scope: Construct, key: kms.IKey | None) -> None:
    """Let FSx use ``key``; where the key's policy cannot be changed from here, say what it needs.

    None (a bucket without an own key) needs nothing.
    """
    if key is None or key in _admitted:
        return
    _admitted.add(key)
    statement = data_repository_statement(Stack.of(scope).account)
    if not key.add_to_resource_policy(statement, True).statement_added:
        Annotations.of(scope).add_warning_v2(
            "cdk-blackwell:imported-key",
            f"the key {key.node.path} is imported, so its policy is not changed: it must let FSx's "
            "service-linked role (aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/"
            f"AWSServiceRoleForFSxS3Access_*) do {', '.join(DATA_REPOSITORY_ACTIONS)}",
        )


class StorageKey(Construct):
    """KMS key with rotation, kept when its stack goes, since data without its key is lost.

    Beside the account itself, its policy admits two services that have no role of the user's:
    FSx's service-linked role, which moves objects between S3 and Lustre, and CloudWatch, whose
    alarms publish to encrypted topics.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.key: kms.Key = kms.Key(
            self,
            "Key",
            description="Training data, checkpoints and notifications (cdk-blackwell)",
            enable_key_rotation=True,
            removal_policy=KEPT,
        )
        admit_data_repository(self, self.key)
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsToTopics",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )
