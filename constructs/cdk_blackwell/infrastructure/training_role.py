"""The role a training job runs under: one job's prefix, one image, one subnet, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aws_cdk import Aws, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from cdk_blackwell.infrastructure.checkpoint_store import ICheckpointStore
from cdk_blackwell.infrastructure.kinds import check_kinds
from cdk_blackwell.infrastructure.places import differ
from cdk_blackwell.infrastructure.s3_prefix import S3Prefix
from cdk_blackwell.infrastructure.training_image import TrainingImage
from cdk_blackwell.planning.contracts import (
    CHECKPOINTS_FOLDER,
    METRICS_NAMESPACE,
    NAMESPACE_OF_JOBS,
)


@dataclass(frozen=True, kw_only=True)
class Grant:
    """One statement; ``{names}`` are filled by the construct."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    why: str
    conditions: Mapping[str, Mapping[str, str | Sequence[str]]] = field(default_factory=dict)


SUBNET: Final = "arn:{partition}:ec2:{region}:*:subnet/{subnet}"
"""A subnet that another account shares has that account in its ARN; the id is one of its own."""

BASE_GRANTS: Final = (
    Grant(
        sid="ListOwnRuns",
        actions=("s3:ListBucket",),
        resources=("arn:{partition}:s3:::{checkpoint_bucket}",),
        conditions={"StringLike": {"s3:prefix": "{job}/runs/*"}},
        why="find the newest complete checkpoint; fill the channels",
    ),
    Grant(
        sid="LocateBucket",
        actions=("s3:GetBucketLocation",),
        resources=("arn:{partition}:s3:::{checkpoint_bucket}",),
        why="SageMaker asks for the bucket's region before it mounts a channel",
    ),
    Grant(
        sid="OwnRuns",
        actions=(
            "s3:AbortMultipartUpload",
            "s3:GetObject",
            "s3:ListMultipartUploadParts",
            "s3:PutObject",
        ),
        resources=("arn:{partition}:s3:::{checkpoint_bucket}/{job}/runs/*",),
        why="read bundle and run.json, sync checkpoints, report progress, export",
    ),
    Grant(
        sid="PruneCheckpoints",
        actions=("s3:DeleteObject",),
        resources=(
            "arn:{partition}:s3:::{checkpoint_bucket}/{job}/runs/*/" + CHECKPOINTS_FOLDER + "/*",
        ),
        why="SageMaker's sync deletes in S3 what was pruned on disk; what else a run left stays",
    ),
    Grant(
        sid="Logs",
        actions=("logs:CreateLogGroup", "logs:DescribeLogStreams"),
        resources=("arn:{partition}:logs:{region}:{account}:log-group:" + NAMESPACE_OF_JOBS,),
        why="the group that all training jobs of an account share",
    ),
    Grant(
        sid="OwnLogs",
        actions=("logs:CreateLogStream", "logs:PutLogEvents"),
        resources=(
            "arn:{partition}:logs:{region}:{account}:log-group:"
            + NAMESPACE_OF_JOBS
            + ":log-stream:{job}-*",
        ),
        why="the container's output: a stream's name begins with the training job's",
    ),
    Grant(
        sid="Metrics",
        actions=("cloudwatch:PutMetricData",),
        resources=("*",),
        conditions={
            "StringEquals": {"cloudwatch:namespace": (METRICS_NAMESPACE, NAMESPACE_OF_JOBS)}
        },
        why="CloudWatch limits by namespace, not by resource",
    ),
    Grant(
        sid="DescribeNetwork",
        actions=(
            "ec2:DescribeDhcpOptions",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSecurityGroups",
            "ec2:DescribeSubnets",
            "ec2:DescribeVpcs",
        ),
        resources=("*",),
        why="jobs in a VPC; EC2's describe calls cannot be limited to a resource",
    ),
    Grant(
        sid="CreateInterfaces",
        actions=("ec2:CreateNetworkInterface",),
        resources=(
            "arn:{partition}:ec2:{region}:{account}:network-interface/*",
            "arn:{partition}:ec2:{region}:{account}:security-group/{security_group}",
            SUBNET,
        ),
        why="jobs in a VPC: interfaces in the job's subnet, in the job's group only",
    ),
    # "IfExists": EC2 knows the subnet of an interface, but that it fills the key in when SageMaker
    # makes these two calls is not documented, and a wrong guess would block every launch.
    Grant(
        sid="LendInterfaces",
        actions=("ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface"),
        resources=("arn:{partition}:ec2:{region}:{account}:network-interface/*",),
        conditions={"ArnLikeIfExists": {"ec2:Subnet": SUBNET}},
        why="jobs in a VPC: SageMaker's instances use these interfaces and remove them at the end",
    ),
    # This action knows no resource type: named with an ARN, it would never be allowed.
    Grant(
        sid="ReturnInterfaces",
        actions=("ec2:DeleteNetworkInterfacePermission",),
        resources=("*",),
        why="jobs in a VPC: SageMaker takes the interfaces' permissions back at the end; EC2 does "
        "not limit this call to a resource",
    ),
)

STORAGE_KEY_ACTIONS: Final = ("kms:Decrypt", "kms:GenerateDataKey")
"""Objects of the checkpoint bucket are encrypted with these keys."""
OUTPUT_KEY_ACTIONS: Final = ("kms:DescribeKey", "kms:Encrypt")
"""SageMaker asks the role for these too where OutputDataConfig names a key."""

IMAGE_GRANTS: Final = (
    Grant(
        sid="RegistryLogin",
        actions=("ecr:GetAuthorizationToken",),
        resources=("*",),
        why="a registry login is not limited to a repository",
    ),
    Grant(
        sid="PullImage",
        actions=(
            "ecr:BatchCheckLayerAvailability",
            "ecr:BatchGetImage",
            "ecr:GetDownloadUrlForLayer",
        ),
        resources=("{repository}",),
        why="the training image",
    ),
)

LIST_WEIGHTS: Final = Grant(
    sid="ListWeights",
    actions=("s3:ListBucket",),
    resources=("arn:{partition}:s3:::{weights_bucket}",),
    conditions={"StringLike": {"s3:prefix": "{weights_prefix}*"}},
    why="fill the channel of initial weights",
)
LIST_WHOLE_BUCKET: Final = replace(LIST_WEIGHTS, conditions={})
"""Without a prefix a request to list has no key ``s3:prefix`` for a condition to match."""

WEIGHTS_GRANTS: Final = (
    Grant(
        sid="LocateWeights",
        actions=("s3:GetBucketLocation",),
        resources=("arn:{partition}:s3:::{weights_bucket}",),
        why="SageMaker asks for the bucket's region before it mounts a channel",
    ),
    Grant(
        sid="ReadWeights",
        actions=("s3:GetObject",),
        resources=("arn:{partition}:s3:::{weights_bucket}/{weights_prefix}*",),
        why="the initial weights, and nothing beside them",
    ),
)


class TrainingRole(Construct):
    """SageMaker execution role of one job, or an existing role with what the job needs.

    :param job: the job's prefix; the role reaches only this prefix of the checkpoint bucket.
    :param checkpoint_store: holds the runs.
    :param encryption_keys: keys of the objects the job reads and writes.
    :param output_key: the key that OutputDataConfig names. Default: it names none.
    :param subnet: where the job's interfaces lie.
    :param security_group: the job's own group.
    :param image: the image to pull.
    :param initial_weights: what the job may read beside its own runs. Default: nothing.
    :param secrets: what the job may read of Secrets Manager. Default: nothing.
    :param statements: more that own scripts need. Default: none.
    :param role: give these rights to this role; it must trust ``sagemaker.amazonaws.com``. A role
        imported as immutable is left as it is. Default: a new role that only training jobs of this
        account and region can have.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        job: str,
        checkpoint_store: ICheckpointStore,
        encryption_keys: list[kms.IKey],
        subnet: ec2.ISubnet,
        security_group: ec2.ISecurityGroup,
        image: TrainingImage,
        output_key: kms.IKey | None = None,
        initial_weights: S3Prefix | None = None,
        secrets: Sequence[secretsmanager.ISecret] = (),
        statements: Sequence[iam.PolicyStatement] = (),
        role: iam.IRole | None = None,
    ) -> None:
        check_kinds(TrainingRole.__init__, locals())
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        if role is not None and differ(role.env.account, stack.account):
            raise ValueError(
                f"role {role.node.path} is of account {role.env.account}, the stack of "
                f"{stack.account}: a training job takes roles of its own account only"
            )
        self.role: iam.IRole = role or self._own_role(stack, job)
        names = {
            "partition": Aws.PARTITION,
            "region": stack.region,
            "account": stack.account,
            "job": job,
            "checkpoint_bucket": checkpoint_store.bucket.bucket_name,
            "subnet": subnet.subnet_id,
            "security_group": security_group.security_group_id,
            "repository": image.repository_arn or "",
        }
        grants = BASE_GRANTS + (IMAGE_GRANTS if image.repository_arn else ())
        if initial_weights is not None:
            names["weights_bucket"] = initial_weights.bucket.bucket_name
            names["weights_prefix"] = initial_weights.prefix
            grants += WEIGHTS_GRANTS
            grants += (LIST_WEIGHTS if initial_weights.prefix else LIST_WHOLE_BUCKET,)
        own = [_statement(grant, names) for grant in grants]
        for sid, actions, keys in (
            ("StorageKey", STORAGE_KEY_ACTIONS, encryption_keys),
            ("OutputKey", OUTPUT_KEY_ACTIONS, [output_key] if output_key else []),
        ):
            if keys:
                arns = [key.key_arn for key in keys]
                own.append(iam.PolicyStatement(sid=sid, actions=list(actions), resources=arns))
        # A policy of its own, so that the job can depend on it: what the role may do must outlive
        # the job that runs under it.
        self.policy: iam.Policy = iam.Policy(self, "Policy", statements=[*own, *statements])
        # By the role's own method, which an immutable role answers by doing nothing.
        self.role.attach_inline_policy(self.policy)
        if initial_weights is not None and initial_weights.bucket.encryption_key is not None:
            initial_weights.bucket.encryption_key.grant_decrypt(self.policy)
        for secret in secrets:
            secret.grant_read(self.policy)

    def _own_role(self, stack: Stack, job: str) -> iam.Role:
        return iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "sagemaker.amazonaws.com",
                # Only SageMaker acting for a training job of this account: the confused deputy,
                # as SageMaker's own documentation words it for training jobs.
                conditions={
                    "ArnLike": {
                        "aws:SourceArn": f"arn:{Aws.PARTITION}:sagemaker:{stack.region}:"
                        f"{stack.account}:training-job/*"
                    }
                },
            ),
            description=f"Runs training job {job}",
        )


def _statement(grant: Grant, names: Mapping[str, str]) -> iam.PolicyStatement:
    conditions: dict[str, Any] = {
        operator: {
            key: value.format(**names) if isinstance(value, str) else list(value)
            for key, value in pairs.items()
        }
        for operator, pairs in grant.conditions.items()
    }
    return iam.PolicyStatement(
        sid=grant.sid,
        actions=list(grant.actions),
        resources=[resource.format(**names) for resource in grant.resources],
        conditions=conditions or None,
    )
