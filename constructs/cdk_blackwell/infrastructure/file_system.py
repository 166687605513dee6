"""FSx for Lustre in front of the dataset bucket: what the GPUs read their tokens from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from aws_cdk import CfnResource, RemovalPolicy, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct, IDependable

from cdk_blackwell.infrastructure.removal import KEPT

LUSTRE_VERSION: Final = "2.15"
THROUGHPUT_PER_TIB: Final = (125, 250, 500, 1000)
"""MB/s per TiB that PERSISTENT_2 SSD offers."""
DATASET_PATH: Final = "/dataset"
"""Where the dataset bucket appears on the file system."""


@dataclass(frozen=True, kw_only=True)
class LustrePorts:
    """One range of TCP ports Lustre speaks on, in both directions."""

    first: int
    last: int
    why: str


LUSTRE_PORTS: Final = (
    LustrePorts(first=988, last=988, why="Lustre network"),
    LustrePorts(first=1018, last=1023, why="Lustre clients"),
)


class ISharedFileSystem(Protocol):
    """A Lustre file system that shows the dataset bucket, new or imported."""

    @property
    def file_system_id(self) -> str:
        """``fs-...``."""
        ...

    @property
    def mount_name(self) -> str:
        """First component of every path a training job mounts."""
        ...

    @property
    def security_group(self) -> ec2.ISecurityGroup:
        """Guards the file system's interfaces; a job adds its own rules to it."""
        ...

    @property
    def availability_zone(self) -> str:
        """Zone of the file system; a job must run there."""
        ...

    @property
    def dataset_bucket(self) -> s3.IBucket:
        """Bucket whose objects appear under ``dataset_path``."""
        ...

    @property
    def dataset_path(self) -> str:
        """Absolute path on the file system, without a trailing slash."""
        ...

    @property
    def ready(self) -> list[IDependable]:
        """What must exist before a job can mount (the association, the rules)."""
        ...


@dataclass(frozen=True, kw_only=True)
class _ImportedFileSystem:
    file_system_id: str
    mount_name: str
    security_group: ec2.ISecurityGroup
    availability_zone: str
    dataset_bucket: s3.IBucket
    dataset_path: str

    @property
    def ready(self) -> list[IDependable]:
        return []


class SharedFileSystem(Construct):
    """FSx for Lustre, PERSISTENT_2 SSD, LZ4, with the dataset bucket linked at ``/dataset``.

    :param vpc: network of the file system.
    :param subnet: its one subnet; jobs must run in the same zone.
    :param dataset_bucket: objects appear under ``/dataset`` and follow later changes.
    :param encryption_key: encrypts the file system at rest.
    :param storage_gib: 1200 or a multiple of 2400. Default: 1200.
    :param throughput_per_tib: 125, 250, 500 or 1000 MB/s per TiB. Default: 250.
    :param removal_policy: what happens when the stack goes. Default: file system, association and
        security group stay; the subnet must then stay too.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        dataset_bucket: s3.IBucket,
        encryption_key: kms.IKey,
        storage_gib: int = 1200,
        throughput_per_tib: int = 250,
        removal_policy: RemovalPolicy = KEPT,
    ) -> None:
        super().__init__(scope, construct_id)
        _check_capacity(storage_gib, throughput_per_tib)
        self.dataset_bucket: s3.IBucket = dataset_bucket
        self.dataset_path: str = DATASET_PATH
        self.availability_zone: str = subnet.availability_zone
        self.security_group: ec2.ISecurityGroup = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=vpc,
            description="FSx for Lustre servers",
            allow_all_outbound=False,
        )
        rules = self._lustre_rules_among_servers()

        file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=storage_gib,
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[self.security_group.security_group_id],
            kms_key_id=encryption_key.key_arn,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type="PERSISTENT_2",
                per_unit_storage_throughput=throughput_per_tib,
                data_compression_type="LZ4",
            ),
        )
        # A file system that stays needs its group and rules too: its interfaces hold the group, and
        # without the rules nobody could mount it again.
        self.security_group.apply_removal_policy(removal_policy)
        for resource in (file_system, *rules):
            resource.apply_removal_policy(removal_policy)
        # FSx checks at creation that its group lets Lustre through ("do not permit Lustre LNET
        # network traffic on port 988"); CloudFormation does not know that the rules matter.
        file_system.node.add_dependency(self.security_group)
        for rule in rules:
            file_system.node.add_dependency(rule)

        association = fsx.CfnDataRepositoryAssociation(
            self,
            "Dataset",
            file_system_id=file_system.ref,
            file_system_path=DATASET_PATH,
            data_repository_path=f"s3://{dataset_bucket.bucket_name}",
            batch_import_meta_data_on_create=True,
            s3=fsx.CfnDataRepositoryAssociation.S3Property(
                auto_import_policy=fsx.CfnDataRepositoryAssociation.AutoImportPolicyProperty(
                    events=["NEW", "CHANGED", "DELETED"]
                )
            ),
        )
        # The association goes and stays with its file system: alone it cannot live, and deleting
        # it from a file system that stays would cut that off from its data.
        association.apply_removal_policy(removal_policy)

        self.file_system_id: str = file_system.ref
        self.mount_name: str = file_system.attr_lustre_mount_name
        self._ready: list[IDependable] = [association, *rules]

    @property
    def ready(self) -> list[IDependable]:
        """What must exist before a job can mount: the association and the rules."""
        return list(self._ready)

    @staticmethod
    def from_attributes(
        *,
        file_system_id: str,
        mount_name: str,
        security_group: ec2.ISecurityGroup,
        availability_zone: str,
        dataset_bucket: s3.IBucket,
        dataset_path: str = DATASET_PATH,
    ) -> ISharedFileSystem:
        """Use a file system that exists, with an association of ``dataset_bucket``."""
        if not Token.is_unresolved(dataset_path) and not dataset_path.startswith("/"):
            raise ValueError(f"dataset_path {dataset_path!r} must begin with a slash")
        return _ImportedFileSystem(
            file_system_id=file_system_id,
            mount_name=mount_name,
            security_group=security_group,
            availability_zone=availability_zone,
            dataset_bucket=dataset_bucket,
            dataset_path=dataset_path.rstrip("/"),
        )

    def _lustre_rules_among_servers(self) -> list[CfnResource]:
        group_id = self.security_group.security_group_id
        rules: list[CfnResource] = []
        for ports in LUSTRE_PORTS:
            suffix = str(ports.first)
            rules.append(
                ec2.CfnSecurityGroupIngress(
                    self,
                    f"ServerIngress{suffix}",
                    group_id=group_id,
                    source_security_group_id=group_id,
                    ip_protocol="tcp",
                    from_port=ports.first,
                    to_port=ports.last,
                    description=f"{ports.why} among file servers",
                )
            )
            rules.append(
                ec2.CfnSecurityGroupEgress(
                    self,
                    f"ServerEgress{suffix}",
                    group_id=group_id,
                    destination_security_group_id=group_id,
                    ip_protocol="tcp",
                    from_port=ports.first,
                    to_port=ports.last,
                    description=f"{ports.why} among file servers",
                )
            )
        return rules


def _check_capacity(storage_gib: int, throughput_per_tib: int) -> None:
    if storage_gib != 1200 and (storage_gib < 2400 or storage_gib % 2400):
        raise ValueError(
            f"storage_gib {storage_gib} is not offered: PERSISTENT_2 SSD takes 1200, 2400 and "
            f"then steps of 2400; the next larger is {-(-storage_gib // 2400) * 2400 or 1200}"
        )
    if throughput_per_tib not in THROUGHPUT_PER_TIB:
        allowed = ", ".join(map(str, THROUGHPUT_PER_TIB))
        raise ValueError(
            f"throughput_per_tib {throughput_per_tib} is not offered: give one of {allowed}"
        )
