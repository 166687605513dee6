"""FSx for Lustre between S3 and the GPUs: the dataset to read, checkpoints to write."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from aws_cdk import Annotations, CfnResource, RemovalPolicy, Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct, IDependable

from cdk_blackwell.infrastructure.encryption import StorageKey, admit_data_repository
from cdk_blackwell.infrastructure.kinds import check_kinds
from cdk_blackwell.infrastructure.lustre import (
    LUSTRE_PORTS,
    LUSTRE_VERSION,
    LustrePorts,
    LustreSize,
    check_metadata_iops,
    choose_size,
    shortfall,
)
from cdk_blackwell.infrastructure.places import (
    DATASET_REGION,
    check_key_region,
    check_region,
    zone_of,
)
from cdk_blackwell.infrastructure.removal import KEPT
from cdk_blackwell.planning.storage_needs import StorageNeeds

DATASET_PATH: Final = "/dataset"
"""Where the dataset bucket appears on the file system."""
CHECKPOINTS_PATH: Final = "/checkpoints"
"""Below it each job has a folder, linked to its own prefix of the checkpoint bucket."""
MAXIMUM_ASSOCIATIONS: Final = 8
"""Of one file system."""

_ALL_TRAFFIC: Final = "-1"
_TEXTS: Final = ("file_system_id", "mount_name", "availability_zone", "dataset_path")
_linked: weakref.WeakKeyDictionary[IConstruct, dict[str, list[str]]] = weakref.WeakKeyDictionary()
"""Paths linked in an app, by file system."""


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
    def efa(self) -> bool:
        """Whether its clients may use EFA, which takes all traffic and not Lustre's ports alone."""
        ...

    @property
    def size(self) -> LustreSize | None:
        """Capacity and speed; None where they are not known."""
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
    efa: bool
    size: LustreSize | None = None

    @property
    def ready(self) -> list[IDependable]:
        return []


def export_checkpoints(
    scope: Construct,
    construct_id: str,
    *,
    file_system: ISharedFileSystem,
    bucket: s3.IBucket,
    job: str,
) -> fsx.CfnDataRepositoryAssociation:
    """Link ``/checkpoints/<job>`` on the file system to ``<job>/runs`` in the checkpoint bucket.

    New and changed files are exported, deletions never: what a run prunes on Lustre stays in S3
    until somebody removes it there. Objects that exist already appear on Lustre, so that a run can
    be resumed on another file system. The link goes with its stack; files and objects stay.

    A training job can mount the folder only if it exists. That FSx makes it with the association is
    taken for granted here and was never tried; if not, the job fails before it trains, and the
    folder has to be made once from any client.

    ValueError when FSx would refuse the link: it is one too many, or its objects are linked as the
    dataset already.
    """
    # Of a file system made here it is known that the whole bucket is linked.
    linked_whole = file_system.size is not None
    if linked_whole and bucket.bucket_name == file_system.dataset_bucket.bucket_name:
        raise ValueError(
            f"checkpoints and dataset are in one bucket, {bucket.node.path}, which is linked to "
            f"{DATASET_PATH} as a whole, and FSx links no object twice: give the checkpoint store "
            "a bucket of its own"
        )
    path = f"{CHECKPOINTS_PATH}/{job}"
    _count_link(scope, file_system.file_system_id, path)
    admit_data_repository(scope, bucket.encryption_key)
    association = fsx.CfnDataRepositoryAssociation(
        scope,
        construct_id,
        file_system_id=file_system.file_system_id,
        file_system_path=path,
        data_repository_path=f"s3://{bucket.bucket_name}/{job}/runs",
        batch_import_meta_data_on_create=True,
        s3=fsx.CfnDataRepositoryAssociation.S3Property(
            auto_export_policy=fsx.CfnDataRepositoryAssociation.AutoExportPolicyProperty(
                events=["NEW", "CHANGED"]
            )
        ),
    )
    association.apply_removal_policy(RemovalPolicy.DESTROY)
    for needed in file_system.ready:
        association.node.add_dependency(needed)
    return association


def _count_link(scope: Construct, file_system_id: str, path: str) -> None:
    """Paths linked so far, the dataset's included, on this file system in this app."""
    linked = _linked.setdefault(scope.node.root, {}).setdefault(file_system_id, [DATASET_PATH])
    linked.append(path)
    if len(linked) > MAXIMUM_ASSOCIATIONS:
        raise ValueError(
            f"the file system would have {len(linked)} data repository associations "
            f"({', '.join(linked)}), and FSx allows {MAXIMUM_ASSOCIATIONS}: give some of the jobs "
            "on several instances another SharedFileSystem"
        )


class SharedFileSystem(Construct):
    """FSx for Lustre, PERSISTENT_2 SSD, LZ4, with the dataset bucket linked at ``/dataset``.

    :param vpc: network of the file system.
    :param subnet: its one subnet; jobs must run in the same zone.
    :param dataset_bucket: objects appear under ``/dataset`` and follow later changes. The policy of
        its key, and of ``encryption_key``, is told to admit FSx where it can be changed.
    :param encryption_key: encrypts the file system at rest. Default: the bucket's key, else a new
        one.
    :param storage_needs: what the planner says that jobs need (``planning.storage_needs``), to
        derive the size from. Default: none.
    :param storage_gib: 1200 or a multiple of 2400; with EFA steps of 4,800 to 38,400. Default: the
        smallest that meets ``storage_needs``, else 1200.
    :param throughput_per_tib: 125, 250, 500 or 1000 MB/s per TiB. Default: the smallest that meets
        ``storage_needs``, else 250.
    :param metadata_iops: metadata operations per second. Fixed at creation. Default: as many as
        come with the size, growing with it.
    :param efa: let clients use EFA. It makes the file system start at 4.8 to 38.4 TiB; whether
        SageMaker's hosts mount over EFA is not documented. Fixed at creation. Default: no.
    :param security_group: guards the file system; rules for Lustre are added to it. Default: a new
        one.
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
        encryption_key: kms.IKey | None = None,
        storage_needs: Sequence[StorageNeeds] = (),
        storage_gib: int | None = None,
        throughput_per_tib: int | None = None,
        metadata_iops: int | None = None,
        efa: bool = False,
        security_group: ec2.ISecurityGroup | None = None,
        removal_policy: RemovalPolicy = KEPT,
    ) -> None:
        check_kinds(SharedFileSystem.__init__, locals())
        super().__init__(scope, construct_id)
        self.size: LustreSize = choose_size(
            storage_needs,
            storage_gib=storage_gib,
            throughput_per_tib=throughput_per_tib,
            efa=efa,
        )
        too_small = shortfall(self.size, storage_needs)
        if too_small is not None:
            Annotations.of(self).add_warning_v2("cdk-blackwell:file-system-size", too_small)
        check_metadata_iops(metadata_iops)
        check_region(
            "dataset_bucket",
            dataset_bucket,
            Stack.of(self),
            DATASET_REGION,
        )
        self.dataset_bucket: s3.IBucket = dataset_bucket
        self.dataset_path: str = DATASET_PATH
        self.efa: bool = efa
        self.availability_zone: str = zone_of(subnet)
        self.encryption_key: kms.IKey = (
            encryption_key or dataset_bucket.encryption_key or StorageKey(self, "StorageKey").key
        )
        check_key_region("encryption_key", self.encryption_key, Stack.of(self))
        admit_data_repository(self, dataset_bucket.encryption_key)
        self.security_group: ec2.ISecurityGroup = security_group or self._own_group(
            vpc, removal_policy
        )
        rules = self._rules_among_servers(efa=efa)

        file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=LUSTRE_VERSION,
            storage_type="SSD",
            storage_capacity=self.size.storage_gib,
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[self.security_group.security_group_id],
            kms_key_id=self.encryption_key.key_arn,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type="PERSISTENT_2",
                per_unit_storage_throughput=self.size.throughput_per_tib,
                data_compression_type="LZ4",
                # Cannot be added later: without it, metadata speed could never be raised.
                metadata_configuration=fsx.CfnFileSystem.MetadataConfigurationProperty(
                    mode="USER_PROVISIONED" if metadata_iops else "AUTOMATIC", iops=metadata_iops
                ),
                efa_enabled=efa or None,
            ),
        )
        # A file system that stays needs its group and rules too: its interfaces hold the group, and
        # without the rules nobody could mount it again.
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
        efa: bool = False,
    ) -> ISharedFileSystem:
        """Use a file system that exists, with an association of ``dataset_bucket``.

        :param file_system_id: ``fs-...``.
        :param mount_name: as FSx gave it; the first part of every path that a job mounts.
        :param security_group: of the file system; a job adds its rules to it.
        :param availability_zone: of the file system; jobs must run there.
        :param dataset_bucket: what the association shows.
        :param dataset_path: where that bucket appears, from ``/``. Default: ``/dataset``.
        :param efa: the file system was made with EFA. Default: no.

        Its size is not known, so whether checkpoints fit is not checked.
        """
        check_kinds(SharedFileSystem.from_attributes, locals(), tokens=_TEXTS)
        if not Token.is_unresolved(dataset_path) and not dataset_path.startswith("/"):
            raise ValueError(f"dataset_path {dataset_path!r} must begin with a slash")
        return _ImportedFileSystem(
            file_system_id=file_system_id,
            mount_name=mount_name,
            security_group=security_group,
            availability_zone=availability_zone,
            dataset_bucket=dataset_bucket,
            dataset_path=dataset_path.rstrip("/"),
            efa=efa,
        )

    def _own_group(self, vpc: ec2.IVpc, removal_policy: RemovalPolicy) -> ec2.ISecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=vpc,
            description="FSx for Lustre servers",
            allow_all_outbound=False,
        )
        group.apply_removal_policy(removal_policy)
        return group

    def _rules_among_servers(self, *, efa: bool) -> list[CfnResource]:
        """Lustre's ports among the servers; EFA, which has no ports, takes all traffic."""
        if efa:
            return self._rules_of(None)
        return [rule for ports in LUSTRE_PORTS for rule in self._rules_of(ports)]

    def _rules_of(self, ports: LustrePorts | None) -> list[CfnResource]:
        group_id = self.security_group.security_group_id
        suffix = str(ports.first) if ports else "Efa"
        first, last = (ports.first, ports.last) if ports else (None, None)
        protocol = "tcp" if ports else _ALL_TRAFFIC
        description = f"{ports.why if ports else 'EFA'} among file servers"
        return [
            ec2.CfnSecurityGroupIngress(
                self,
                f"ServerIngress{suffix}",
                group_id=group_id,
                source_security_group_id=group_id,
                ip_protocol=protocol,
                from_port=first,
                to_port=last,
                description=description,
            ),
            ec2.CfnSecurityGroupEgress(
                self,
                f"ServerEgress{suffix}",
                group_id=group_id,
                destination_security_group_id=group_id,
                ip_protocol=protocol,
                from_port=first,
                to_port=last,
                description=description,
            ),
        ]
