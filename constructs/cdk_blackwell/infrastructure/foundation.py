"""Everything stateful that training jobs share, in one construct."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct, IDependable

from cdk_blackwell.infrastructure.bucket import access_log_bucket, private_bucket
from cdk_blackwell.infrastructure.checkpoint_store import CheckpointStore, ICheckpointStore
from cdk_blackwell.infrastructure.encryption import StorageKey
from cdk_blackwell.infrastructure.endpoints import DEFAULT_INTERFACE_ENDPOINTS
from cdk_blackwell.infrastructure.file_system import ISharedFileSystem, SharedFileSystem
from cdk_blackwell.infrastructure.kinds import check_kinds
from cdk_blackwell.infrastructure.network import (
    DEFAULT_CIDR,
    ITrainingNetwork,
    TrainingNetwork,
)
from cdk_blackwell.infrastructure.removal import KEPT
from cdk_blackwell.planning.storage_needs import StorageNeeds


class IFoundation(Protocol):
    """What a job needs around it. Any object with these attributes will do."""

    @property
    def vpc(self) -> ec2.IVpc:
        """Network of the job."""
        ...

    @property
    def subnet(self) -> ec2.ISubnet:
        """The one subnet all instances land in."""
        ...

    @property
    def file_system(self) -> ISharedFileSystem:
        """Shows the dataset; lies in the subnet's zone."""
        ...

    @property
    def checkpoint_store(self) -> ICheckpointStore:
        """Receives checkpoints and exports."""
        ...

    @property
    def encryption_key(self) -> kms.IKey:
        """Encrypts what the job itself creates (exports, notifications)."""
        ...

    @property
    def ready(self) -> list[IDependable]:
        """What must exist while a job runs and outlive it (endpoints)."""
        ...


class Foundation(Construct):
    """Network, file system, dataset and checkpoint buckets, and their key; each may be given.

    :param availability_zone: where the capacity is. Required unless ``network`` is given.
    :param network: use this network (``TrainingNetwork.from_subnet`` for one that exists), and make
        none. Default: a new one, of the parameters that follow.
    :param cidr: IPv4 range of the VPC. Default: 10.64.0.0/16.
    :param interface_endpoints: as ``TrainingNetwork`` takes them. Default: ``monitoring``.
    :param nat: give the network a NAT gateway. Default: no.
    :param encryption_key: encrypts file system, buckets, exports and notifications; where it is
        imported, its policy must admit FSx and CloudWatch as ``StorageKey`` does. Default: a new
        key.
    :param dataset_bucket: holds the dataset. Default: a new one, versioned.
    :param checkpoint_store: receives runs. Default: a new one.
    :param versioned_checkpoints: keep overwritten objects in the new one for a time. Default: no.
    :param storage_needs: what the planner says that jobs need of the file system. Default: none.
    :param storage_gib: size of the file system. Default: from ``storage_needs``, else 1200.
    :param throughput_per_tib: MB/s per TiB of the file system. Default: from ``storage_needs``,
        else 250.
    :param metadata_iops: metadata operations per second of the file system. Default: as many as
        come with its size.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        availability_zone: str | None = None,
        network: ITrainingNetwork | None = None,
        cidr: str = DEFAULT_CIDR,
        interface_endpoints: Sequence[str] = DEFAULT_INTERFACE_ENDPOINTS,
        nat: bool = False,
        encryption_key: kms.IKey | None = None,
        dataset_bucket: s3.IBucket | None = None,
        checkpoint_store: ICheckpointStore | None = None,
        versioned_checkpoints: bool = False,
        storage_needs: Sequence[StorageNeeds] = (),
        storage_gib: int | None = None,
        throughput_per_tib: int | None = None,
        metadata_iops: int | None = None,
    ) -> None:
        check_kinds(Foundation.__init__, locals(), tokens=("availability_zone",))
        super().__init__(scope, construct_id)
        if network is not None and (availability_zone is not None or nat):
            raise ValueError(
                "network is given together with availability_zone or nat, which belong to a new "
                "one: leave them out, or leave network out"
            )
        if checkpoint_store is not None and versioned_checkpoints:
            raise ValueError(
                "versioned_checkpoints belongs to a new checkpoint store, and checkpoint_store is "
                "given: leave one of them out"
            )
        self.encryption_key: kms.IKey = encryption_key or StorageKey(self, "StorageKey").key
        if network is None:
            if availability_zone is None:
                raise ValueError(
                    "availability_zone is missing: give the zone of your capacity, such as "
                    "us-west-2b, or network=TrainingNetwork.from_subnet(...) for one that exists"
                )
            network = TrainingNetwork(
                self,
                "Network",
                availability_zone=availability_zone,
                cidr=cidr,
                interface_endpoints=interface_endpoints,
                nat=nat,
                # The file system stays, and its interfaces hold subnet and VPC.
                removal_policy=KEPT,
            )
        self.network: ITrainingNetwork = network
        self.vpc: ec2.IVpc = network.vpc
        self.subnet: ec2.ISubnet = network.subnet
        logs = (
            access_log_bucket(self, "AccessLogs", removal_policy=KEPT)
            if dataset_bucket is None or checkpoint_store is None
            else None
        )
        # Versioned: a dataset that is overwritten by mistake can be brought back, and is small
        # beside the checkpoints.
        self.dataset_bucket: s3.IBucket = dataset_bucket or private_bucket(
            self,
            "DatasetBucket",
            encryption_key=self.encryption_key,
            versioned=True,
            access_logs=logs,
            removal_policy=KEPT,
        )
        self.checkpoint_store: ICheckpointStore = checkpoint_store or CheckpointStore(
            self,
            "CheckpointStore",
            encryption_key=self.encryption_key,
            versioned=versioned_checkpoints,
            access_logs=logs,
        )
        self.file_system: ISharedFileSystem = SharedFileSystem(
            self,
            "FileSystem",
            vpc=self.vpc,
            subnet=self.subnet,
            dataset_bucket=self.dataset_bucket,
            encryption_key=self.encryption_key,
            storage_needs=storage_needs,
            storage_gib=storage_gib,
            throughput_per_tib=throughput_per_tib,
            metadata_iops=metadata_iops,
        )

    @property
    def ready(self) -> list[IDependable]:
        """The endpoints and routes: a job without them can neither read nor save."""
        return self.network.ready
