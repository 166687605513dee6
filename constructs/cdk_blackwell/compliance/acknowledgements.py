"""Findings of cdk-nag that this library's constructs keep, each with its reason, as data.

Every entry names a construct, the resource below it, the rules of the packs and, where a rule
reports several findings of one resource, the one finding. ``acknowledge_findings`` applies them to
an app; what is not listed here still stops synthesis. A test compares this list with the packs'
report over all stacks in both directions.

Packs: AwsSolutions, HIPAA Security, NIST 800-53 R5 and PCI DSS 3.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Acknowledged:
    """One finding, or one that several packs share."""

    construct: str
    """Class of this library that makes the resource."""
    path: str
    """Path of the resource below that construct."""
    rules: tuple[str, ...]
    """Ids as the packs report them, without the finding."""
    reason: str
    finding: str | None = None
    """What stands in brackets after the id; ``{}`` is any text without a wildcard in it."""


def _packs(name: str, *packs: str) -> tuple[str, ...]:
    return tuple(f"{pack}-{name}" for pack in packs)


_HIPAA: Final = "HIPAA.Security"
_NIST: Final = "NIST.800.53.R5"
_PCI: Final = "PCI.DSS.321"
_ALL: Final = (_HIPAA, _NIST, _PCI)
_IAM5: Final = ("AwsSolutions-IAM5",)

_INLINE: Final = (
    "The policy belongs to exactly one role and goes with it. As a managed policy it could be "
    "attached to other principals, for which its statements were never meant."
)
_LOGS: Final = (
    "CloudWatch Logs encrypts every group at rest with its own key. {} An own key for it would "
    "have to admit the Logs service, which cannot be done for an imported key. {}"
)

_OWN_MEMBERS: Final = (
    "The rule admits members of this very group, no address. EFA traffic is not IP and matches "
    "only a rule for all protocols that names the group itself."
)

ACKNOWLEDGEMENTS: Final[tuple[Acknowledged, ...]] = (
    # --- TrainingRole ----------------------------------------------------------------------------
    Acknowledged(
        construct="TrainingRole",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::*",
        reason="Actions that IAM does not limit to a resource: ec2:Describe* and "
        "ec2:DeleteNetworkInterfacePermission, which SageMaker needs for jobs in a VPC, "
        "ecr:GetAuthorizationToken, and cloudwatch:PutMetricData, which a condition limits to two "
        "namespaces.",
    ),
    Acknowledged(
        construct="TrainingRole",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::arn:{}:ec2:{}:{}:network-interface/*",
        reason="SageMaker makes the job's interfaces at launch, so their ids are not known. The "
        "subnet and the security group in which it may make them are named.",
    ),
    Acknowledged(
        construct="TrainingRole",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::arn:{}:logs:{}:{}:log-group:/aws/sagemaker/TrainingJobs:log-stream:{}-*",
        reason="Streams of this job's own attempts in the one log group that SageMaker gives to "
        "training jobs: run and attempt in the name are known at launch only.",
    ),
    Acknowledged(
        construct="TrainingRole",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::arn:{}:ec2:{}:*:subnet/{}",
        reason="The job's one subnet, by its id. Where another account shares it, its ARN holds "
        "that account, which is not known at synth; the id is nobody else's.",
    ),
    Acknowledged(
        construct="TrainingRole",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::arn:{}:s3:::{}/{}/runs/*",
        reason="Objects of this job's own prefix only: checkpoints, progress and exports, whose "
        "keys hold run ids and steps that only training knows.",
    ),
    Acknowledged(
        construct="TrainingRole",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::arn:{}:s3:::{}/{}/runs/*/checkpoints/*",
        reason="The only objects it may delete: pruned checkpoints of this job's own runs, below "
        "run ids and steps that only training knows.",
    ),
    Acknowledged(
        construct="TrainingRole",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::arn:{}:s3:::{}/{}/*",
        reason="Only with initial_weights: the objects below the one prefix that is given, to be "
        "read and nothing else; their names are not known at synth.",
    ),
    Acknowledged(
        construct="TrainingRole",
        path="Policy/Resource",
        rules=_packs("IAMNoInlinePolicy", *_ALL),
        reason=_INLINE,
    ),
    # --- RunController ---------------------------------------------------------------------------
    Acknowledged(
        construct="RunController",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::*",
        reason="ec2:DescribeNetworkInterfaces, ec2:DescribeSecurityGroups and "
        "cloudwatch:GetMetricData only read, and IAM does not limit them to a resource.",
    ),
    Acknowledged(
        construct="RunController",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::arn:{}:sagemaker:{}:{}:training-job/{}-????????-*",
        reason="Training jobs of this job's own prefix (also in lower case, as SageMaker writes "
        "some ARNs): the stack's id, the run and the attempt in the name are known at launch only.",
    ),
    Acknowledged(
        construct="RunController",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::arn:{}:s3:::{}/{}/runs/*",
        reason="Objects of this job's own prefix only: the frozen run and its progress, below run "
        "ids that only a launch knows.",
    ),
    Acknowledged(
        construct="RunController",
        path="Policy/Resource",
        rules=_IAM5,
        finding="Resource::arn:{}:s3:::{}/{}/runs/*/run.json",
        reason="The only object it may delete: the run.json of a launch that SageMaker refused, "
        "below a run id that only a launch knows.",
    ),
    Acknowledged(
        construct="RunController",
        path="Policy/Resource",
        rules=_packs("IAMNoInlinePolicy", *_ALL),
        reason=_INLINE,
    ),
    Acknowledged(
        construct="RunController",
        path="Role/DefaultPolicy/Resource",
        rules=_packs("IAMNoInlinePolicy", *_ALL),
        reason=_INLINE,
    ),
    Acknowledged(
        construct="RunController",
        path="Function/Resource",
        rules=("AwsSolutions-L1",),
        reason="Python 3.13 is a supported runtime of Lambda and the newest that this library's "
        "handler is tested on; a newer one is taken up with its tests.",
    ),
    Acknowledged(
        construct="RunController",
        path="Function/Resource",
        rules=_packs("LambdaInsideVPC", *_ALL),
        reason="It calls AWS APIs only and holds no data. Outside the VPC it can still stop a job "
        "and wait for its interfaces while the network is being removed; inside it would hold that "
        "network itself.",
    ),
    Acknowledged(
        construct="RunController",
        path="Function/Resource",
        rules=_packs("LambdaConcurrency", _HIPAA, _NIST),
        reason="Only this job's events, a five-minute schedule and its own stack invoke it. "
        "Reserved concurrency would throttle the stop of a job while it launches another, and "
        "cannot be had at all in accounts with the initial limit of 10.",
    ),
    Acknowledged(
        construct="RunController",
        path="Table/Resource",
        rules=_packs("DynamoDBInBackupPlan", _HIPAA, _NIST),
        reason="Point-in-time recovery is on. The table holds claims of running jobs, keyed by the "
        "stack's id; what must last (checkpoints) lies in the checkpoint store.",
    ),
    Acknowledged(
        construct="RunController",
        path="Log/Resource",
        rules=_packs("CloudWatchLogGroupEncrypted", *_ALL),
        reason=_LOGS.format(
            "This one holds the controller's decisions: names, steps and numbers, no training "
            "data.",
            "Give the job log_group=... to use one of yours.",
        ),
    ),
    # --- JobSecurityGroup ------------------------------------------------------------------------
    Acknowledged(
        construct="JobSecurityGroup",
        path="EfaIngress",
        rules=_packs("EC2RestrictedCommonPorts", *_ALL),
        reason=_OWN_MEMBERS,
    ),
    *(
        Acknowledged(
            construct="JobSecurityGroup",
            path=f"{side}IngressEfa",
            rules=_packs("EC2RestrictedCommonPorts", *_ALL),
            reason=f"Only with a file system of efa=True. The rule admits the group of {peer}, no "
            "address; Lustre over EFA matches only a rule for all protocols.",
        )
        for side, peer in (("Lustre", "the file servers"), ("FileSystem", "this job's instances"))
    ),
    Acknowledged(
        construct="SelfRules",
        path="EfaIngress",
        rules=_packs("EC2RestrictedCommonPorts", *_ALL),
        reason=f"{_OWN_MEMBERS} Without it a job on several instances hangs; a group that must not "
        "be changed is given with security_group_rules_exist=True.",
    ),
    # --- TrainingNetwork -------------------------------------------------------------------------
    Acknowledged(
        construct="TrainingNetwork",
        path="Vpc",
        rules=_packs("VPCDefaultSecurityGroupClosed", *_ALL),
        reason="CloudFormation cannot change a VPC's default group. Nothing made here uses it: "
        "every job, endpoint and file system has a group of its own.",
    ),
    Acknowledged(
        construct="TrainingNetwork",
        path="FlowLogGroup/Resource",
        rules=_packs("CloudWatchLogGroupEncrypted", *_ALL),
        reason=_LOGS.format(
            "This one holds addresses and ports of rejected packets, no training data.",
            "A network that exists may be given instead of this one.",
        ),
    ),
    Acknowledged(
        construct="TrainingNetwork",
        path="FlowLogRole/DefaultPolicy/Resource",
        rules=_packs("IAMNoInlinePolicy", *_ALL),
        reason=_INLINE,
    ),
    Acknowledged(
        construct="TrainingNetwork",
        path="PublicRoute",
        rules=_packs("VPCNoUnrestrictedRouteToIGW", *_ALL),
        reason="Only with nat=True. The route belongs to a subnet of 16 addresses that holds the "
        "NAT gateway and nothing else; jobs, endpoints and file systems lie in the private subnet, "
        "which nobody can reach from outside.",
    ),
    # --- SharedFileSystem ------------------------------------------------------------------------
    Acknowledged(
        construct="SharedFileSystem",
        path="ServerIngressEfa",
        rules=_packs("EC2RestrictedCommonPorts", *_ALL),
        reason="Only with efa=True. The rule admits the file servers' own group, no address; FSx "
        "refuses to make a file system with EFA without it.",
    ),
    # --- Buckets ---------------------------------------------------------------------------------
    Acknowledged(
        construct="CheckpointStore",
        path="Bucket/Resource",
        rules=_packs("S3BucketVersioningEnabled", *_ALL),
        reason="Checkpoints are written once under their own step and checked by checksum; pruned "
        "ones would stay as versions of about 12 bytes a parameter each. versioned=True (or "
        "versioned_checkpoints=True) where a policy asks for it.",
    ),
    Acknowledged(
        construct="CheckpointStore",
        path="Bucket/Resource",
        rules=_packs("S3BucketReplicationEnabled", *_ALL),
        reason="A second copy of every checkpoint in another Region doubles storage and adds "
        "transfer for data that training can make again. Give a replicated bucket by "
        "CheckpointStore.from_bucket where the weights must survive a Region.",
    ),
    Acknowledged(
        construct="Foundation",
        path="DatasetBucket/Resource",
        rules=_packs("S3BucketReplicationEnabled", *_ALL),
        reason="The dataset is prepared from sources that lie elsewhere and is versioned here. "
        "Give a replicated bucket as dataset_bucket where that is not enough.",
    ),
    Acknowledged(
        construct="Foundation",
        path="AccessLogs/Resource",
        rules=_packs("S3BucketReplicationEnabled", *_ALL),
        reason="Log lines that expire after a year; where they must survive a Region, they are "
        "collected centrally.",
    ),
    Acknowledged(
        construct="Foundation",
        path="AccessLogs/Resource",
        rules=_packs("S3BucketVersioningEnabled", *_ALL),
        reason="S3 writes each log object once under a name of its own, and no principal of this "
        "library may write or delete here.",
    ),
    Acknowledged(
        construct="Foundation",
        path="AccessLogs/Resource",
        rules=_packs("S3DefaultEncryptionKMS", *_ALL),
        reason="S3 delivers server access logs only to buckets encrypted by its own keys (SSE-S3), "
        "which this one is.",
    ),
)
