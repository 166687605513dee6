"""The one customer-managed key that encrypts datasets, checkpoints, the file system and topics."""

from __future__ import annotations

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from cdk_blackwell.infrastructure.removal import KEPT


class StorageKey(Construct):
    """KMS key with rotation, kept when its stack goes, since data without its key is lost.

    Beside the account itself, its policy admits two services that have no role of the user's:
    FSx's service-linked role, which moves objects between S3 and Lustre, and CloudWatch, whose
    alarms publish to encrypted topics.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self.key: kms.Key = kms.Key(
            self,
            "Key",
            description="Training data, checkpoints and notifications (cdk-blackwell)",
            enable_key_rotation=True,
            removal_policy=KEPT,
        )
        # The role's name ends in the file system's id, which does not exist yet: a pattern, and
        # only within this account.
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="FsxDataRepository",
                principals=[iam.AnyPrincipal()],
                actions=[
                    "kms:Decrypt",
                    "kms:DescribeKey",
                    "kms:Encrypt",
                    "kms:GenerateDataKey*",
                    "kms:ReEncrypt*",
                ],
                resources=["*"],
                conditions={
                    "StringEquals": {"kms:CallerAccount": stack.account},
                    "ArnLike": {
                        "aws:PrincipalArn": f"arn:{Aws.PARTITION}:iam::{stack.account}:role/"
                        "aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/"
                        "AWSServiceRoleForFSxS3Access_*"
                    },
                },
            )
        )
        self.key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsToTopics",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
            )
        )
