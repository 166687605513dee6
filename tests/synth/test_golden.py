"""One golden template per construct: nothing in it changes unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3

from cdk_blackwell import CheckpointStore, Foundation, SharedFileSystem, TrainingNetwork
from tests.jobs.examples import JOBS, REGION, ZONE
from tests.synth.golden import check_golden, masked


def network(stack: Stack) -> None:
    TrainingNetwork(stack, "Network", availability_zone=ZONE, nat=True)


def file_system(stack: Stack) -> None:
    SharedFileSystem(
        stack,
        "FileSystem",
        vpc=ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=[ZONE]),
        subnet=ec2.Subnet.from_subnet_attributes(
            stack, "Subnet", subnet_id="subnet-1", availability_zone=ZONE
        ),
        dataset_bucket=s3.Bucket.from_bucket_name(stack, "Data", "data"),
    )


def checkpoint_store(stack: Stack) -> None:
    CheckpointStore(stack, "Store", versioned=True)


def foundation(stack: Stack) -> None:
    Foundation(stack, "Foundation", availability_zone=ZONE)


def job(name: str) -> Callable[[Stack], None]:
    """On a foundation of another stack, so that the template is the job's alone."""

    def make(stack: Stack) -> None:
        base = Stack(stack.node.scope, "Base", env=Environment(region=REGION))  # type: ignore[arg-type]
        kind, props = JOBS[name]
        kind(
            stack,
            "Train",
            foundation=Foundation(base, "Foundation", availability_zone=ZONE),
            **props,
        )

    return make


CONSTRUCTS: Final[dict[str, Callable[[Stack], None]]] = {
    "training_network": network,
    "shared_file_system": file_system,
    "checkpoint_store": checkpoint_store,
    "foundation": foundation,
    "small_model_job": job("small"),
    "mid_model_job": job("mid"),
    "large_sharded_job": job("large-sharded"),
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_the_template_is_the_one_on_record(tmp_path: Path, name: str) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Golden", env=Environment(region=REGION))
    CONSTRUCTS[name](stack)
    check_golden(stack, name)


def test_asset_hashes_are_masked() -> None:
    key = "a" * 64
    template = {"Resources": {"F": {"Properties": {"Code": {"S3Key": f"{key}.zip"}}}}}
    code = masked(template)["Resources"]["F"]["Properties"]["Code"]
    assert code == {"S3Key": "<asset hash>.zip"}
