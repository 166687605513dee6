"""FoundationStack: what is stateful and shared by jobs. Deployed once, kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import Annotations, CfnOutput, Fn, Stack
from constructs import Construct

from cdk_blackwell.infrastructure.foundation import Foundation
from cdk_blackwell.planning.storage_needs import StorageNeeds


class FoundationStack(Stack):
    """Network, file system, dataset and checkpoint buckets, and their key.

    :param availability_zone: zone with B200 capacity. Default: the region's first, with a warning,
        since capacity is found in few zones. It is fixed for a foundation: an update that changes
        it fails, because the subnet's addresses and the exports of the file system are in use.
    :param nat: give the network a NAT gateway. Default: no.
    :param storage_needs: what the planner says that jobs need of the file system. Default: none.
    :param storage_gib: size of the file system. Default: from ``storage_needs``, else 1200.
    :param throughput_per_tib: MB/s per TiB of the file system. Default: from ``storage_needs``,
        else 250.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        availability_zone: str | None = None,
        nat: bool = False,
        storage_needs: Sequence[StorageNeeds] = (),
        storage_gib: int | None = None,
        throughput_per_tib: int | None = None,
        **stack_props: Any,
    ) -> None:
        super().__init__(scope, construct_id, **stack_props)
        if availability_zone is None:
            Annotations.of(self).add_warning_v2(
                "cdk-blackwell:availability-zone",
                "no availability_zone given: the region's first is used, which may have no B200 "
                "capacity. Give the zone of your capacity with -c availability_zone=<name>; "
                "it is fixed once deployed: another zone needs another foundation",
            )
        self.foundation: Foundation = Foundation(
            self,
            "Foundation",
            availability_zone=availability_zone or Fn.select(0, Fn.get_azs()),
            nat=nat,
            storage_needs=storage_needs,
            storage_gib=storage_gib,
            throughput_per_tib=throughput_per_tib,
        )
        size = self.foundation.file_system.size
        if size is not None and (storage_gib is None or throughput_per_tib is None):
            Annotations.of(self).add_info(
                f"the file system has {size.storage_gib} GiB at {size.throughput_per_tib} MB/s per "
                "TiB, sized for the jobs of this synth. FSx can enlarge it, never shrink it: "
                "deploy with the same tiers, model and instance_count, or give storage_gib and "
                "throughput_per_tib"
            )
        outputs = {
            "DatasetBucket": (
                self.foundation.dataset_bucket.bucket_name,
                "Upload manifest.json and token shards here, under the dataset prefix",
            ),
            "CheckpointBucket": (
                self.foundation.checkpoint_store.bucket.bucket_name,
                "Runs: <job>/runs/<run_id>/",
            ),
            "FileSystem": (self.foundation.file_system.file_system_id, "FSx for Lustre"),
        }
        for name, (value, description) in outputs.items():
            CfnOutput(self, name, value=value, description=description)
