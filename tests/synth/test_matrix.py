"""Every combination of tier, capacity, new or existing surroundings, and the CDK's feature flags.

Each gives a request that SageMaker's own model accepts, or is refused with a reason.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from cdk_blackwell import Capacity, CheckpointStore, Foundation, SharedFileSystem
from cdk_blackwell.compliance.service_model import check_training_request
from tests.environment import ROOT
from tests.jobs.examples import ACCOUNT, JOBS, KEY_ARN, PLAN, REGION, ZONE, request_of

CAPACITIES: Final = {
    "on-demand": Capacity.on_demand(max_pending=Duration.days(1)),
    "warm-pool": Capacity.on_demand(keep_alive=Duration.minutes(30)),
    "plan": Capacity.training_plan(PLAN, fee_usd=1000, availability_zone=ZONE),
    "spot": Capacity.spot(max_wait=Duration.days(2)),
}
SURROUNDINGS: Final = ("new", "existing")
FLAGS: Final[dict[str, dict[str, Any]]] = {
    "recommended": json.loads((ROOT / "cdk.json").read_text())["context"],
    "none": {},
}
COMBINATIONS: Final = tuple(product(JOBS, CAPACITIES, SURROUNDINGS))


def refused(job: str, capacity: str) -> bool:
    """SageMaker syncs checkpoints of spot jobs; those of several instances lie on FSx."""
    return capacity == "spot" and JOBS[job][1]["instance_count"] > 1


def existing(stack: Stack) -> dict[str, Any]:
    key = kms.Key.from_key_arn(stack, "Key", KEY_ARN)
    return {
        "vpc": ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=[ZONE]),
        "subnet": ec2.Subnet.from_subnet_attributes(
            stack, "Subnet", subnet_id="subnet-1", availability_zone=ZONE
        ),
        "file_system": SharedFileSystem.from_attributes(
            file_system_id="fs-0123456789abcdef0",
            mount_name="abcdefgh",
            security_group=ec2.SecurityGroup.from_security_group_id(stack, "Files", "sg-files"),
            availability_zone=ZONE,
            dataset_bucket=s3.Bucket.from_bucket_name(stack, "Data", "data"),
        ),
        "checkpoint_store": CheckpointStore.from_bucket(
            s3.Bucket.from_bucket_attributes(stack, "Runs", bucket_name="runs", encryption_key=key)
        ),
    }


def synthesise(folder: Path, flags: dict[str, Any]) -> dict[tuple[str, str, str], Stack | str]:
    """One app with a stack per combination; the reason in place of a stack that was refused."""
    app = App(outdir=str(folder), context=flags)
    environment = Environment(region=REGION, account=ACCOUNT)
    # A file system takes seven jobs on several instances.
    foundations = {
        capacity: Foundation(
            Stack(app, f"Base-{capacity}", env=environment), "Foundation", availability_zone=ZONE
        )
        for capacity in CAPACITIES
    }
    made: dict[tuple[str, str, str], Stack | str] = {}
    for number, (job, capacity, surroundings) in enumerate(COMBINATIONS):
        # Numbers of two digits: no name continues another.
        stack = Stack(app, f"S{number + 10}", env=environment)
        around = {"foundation": foundations[capacity]} if surroundings == "new" else existing(stack)
        kind, props = JOBS[job]
        try:
            kind(stack, "Job", capacity=CAPACITIES[capacity], **around, **props)
            made[job, capacity, surroundings] = stack
        except ValueError as error:
            made[job, capacity, surroundings] = str(error)
    return made


def check(made: dict[tuple[str, str, str], Stack | str]) -> None:
    assert set(made) == set(COMBINATIONS)
    for (job, capacity, surroundings), stack in made.items():
        name = f"{job}, {capacity}, {surroundings}"
        if refused(job, capacity):
            assert isinstance(stack, str), name
            assert "managed spot needs" in stack, name
            continue
        assert isinstance(stack, Stack), f"{name}: {stack}"
        request = request_of(stack, attempt=999)
        assert check_training_request(request) == [], name
        limits, resources = request["StoppingCondition"], request["ResourceConfig"]
        # Exactly one kind of deadline, and what belongs to one kind of capacity only there.
        assert ("MaxWaitTimeInSeconds" in limits) is (capacity == "spot"), name
        assert ("MaxPendingTimeInSeconds" in limits) is (capacity != "spot"), name
        assert ("TrainingPlanArn" in resources) is (capacity == "plan"), name
        assert ("KeepAlivePeriodInSeconds" in resources) is (capacity == "warm-pool"), name
        assert request.get("EnableManagedSpotTraining", False) is (capacity == "spot"), name
        shared = JOBS[job][1]["instance_count"] > 1
        assert ("CheckpointConfig" in request) is not shared, name


def test_every_combination_with_the_recommended_flags(tmp_path: Path) -> None:
    check(synthesise(tmp_path, FLAGS["recommended"]))


@pytest.mark.slow
def test_every_combination_without_any_flag(tmp_path: Path) -> None:
    check(synthesise(tmp_path, FLAGS["none"]))
