"""The three tiers as requests: where checkpoints lie, how many instances, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Annotations as CdkAnnotations
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk.assertions import Annotations, Match, Template

from cdk_blackwell import Capacity, Foundation, LargeShardedJob, MidModelJob, SmallModelJob
from cdk_blackwell.compliance.service_model import check_training_request
from cdk_blackwell.planning.storage_needs import storage_needs
from tests.jobs.examples import (
    COMMON,
    JOBS,
    LARGE,
    MID,
    PLAN,
    REGION,
    SMALL,
    ZONE,
    channels_of,
    definition_of,
    request_of,
)

SHARED = ("mid-two-nodes", "large-sharded")
LOCAL = ("small", "mid")


@pytest.fixture(scope="session")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stack]:
    """One app: a foundation and a stack for each example."""
    app = App(outdir=str(tmp_path_factory.mktemp("tiers")))
    environment = Environment(region=REGION)
    foundation = Foundation(
        Stack(app, "Base", env=environment), "Foundation", availability_zone=ZONE
    )
    made = {}
    for name, (job, props) in JOBS.items():
        made[name] = Stack(app, name, env=environment)
        job(made[name], "Train", foundation=foundation, **props)
    return made


@pytest.mark.parametrize("name", JOBS)
def test_every_request_keeps_sagemakers_own_model(stacks: dict[str, Stack], name: str) -> None:
    assert check_training_request(request_of(stacks[name], attempt=999)) == []


@pytest.mark.parametrize("name", SHARED)
def test_several_instances_write_to_one_folder_of_the_file_system(
    stacks: dict[str, Stack], name: str
) -> None:
    request = request_of(stacks[name])
    assert channels_of(request)["checkpoints"]["FileSystemDataSource"] == {
        "FileSystemId": "fs-0123456789abcdef0",
        "FileSystemType": "FSxLustre",
        "FileSystemAccessMode": "rw",
        "DirectoryPath": f"/abcdefgh/checkpoints/{name}-Train",
    }
    assert request["Environment"]["CDKB_CHECKPOINT_DIR"] == (
        "/opt/ml/input/data/checkpoints/run-1/checkpoints"
    )


@pytest.mark.parametrize("name", SHARED)
def test_no_host_downloads_the_whole_prefix_of_checkpoints(
    stacks: dict[str, Stack], name: str
) -> None:
    """sagemaker-python-sdk#3062: CheckpointConfig makes every host sync one shared prefix."""
    assert "CheckpointConfig" not in request_of(stacks[name])


@pytest.mark.parametrize("name", SHARED)
def test_what_is_written_there_is_exported_and_never_deleted_in_s3(
    stacks: dict[str, Stack], name: str
) -> None:
    template = Template.from_stack(stacks[name])
    ((link, association),) = template.find_resources("AWS::FSx::DataRepositoryAssociation").items()
    properties = association["Properties"]
    assert properties["FileSystemPath"] == f"/checkpoints/{name}-Train"
    *_, end = properties["DataRepositoryPath"]["Fn::Join"][1]
    # The very layout of S3 that a job on one instance has.
    assert end == f"/{name}-Train/runs"
    assert properties["S3"] == {"AutoExportPolicy": {"Events": ["NEW", "CHANGED"]}}
    # So that a run can be resumed on another file system.
    assert properties["BatchImportMetaDataOnCreate"] is True
    (run,) = template.find_resources("Custom::CdkBlackwellRun").values()
    assert link in run["DependsOn"]


@pytest.mark.parametrize("name", LOCAL)
def test_one_instance_writes_to_its_own_disks(stacks: dict[str, Stack], name: str) -> None:
    request = request_of(stacks[name])
    assert request["CheckpointConfig"] == {
        "S3Uri": f"s3://checkpoint-bucket/{name}-Train/runs/run-1/checkpoints/",
        "LocalPath": "/opt/ml/checkpoints",
    }
    assert "checkpoints" not in channels_of(request)
    template = Template.from_stack(stacks[name])
    template.resource_count_is("AWS::FSx::DataRepositoryAssociation", 0)


@pytest.mark.parametrize("name", JOBS)
def test_no_encryption_key_for_disks_that_the_hardware_encrypts(
    stacks: dict[str, Stack], name: str
) -> None:
    """SageMaker refuses VolumeKmsKeyId on types with local NVMe."""
    assert "VolumeKmsKeyId" not in request_of(stacks[name])["ResourceConfig"]


@pytest.mark.parametrize("name", JOBS)
def test_large_exports_are_not_packed(stacks: dict[str, Stack], name: str) -> None:
    """transformers#11390: an hour of "Uploading" one model.tar.gz."""
    assert request_of(stacks[name])["OutputDataConfig"]["CompressionType"] == "NONE"


@pytest.mark.parametrize("name", JOBS)
def test_waiting_for_capacity_is_queued_with_a_deadline(
    stacks: dict[str, Stack], name: str
) -> None:
    """deepracer-on-aws#88: capacity errors should queue, and not for ever."""
    assert request_of(stacks[name])["StoppingCondition"]["MaxPendingTimeInSeconds"] == 43_200


@pytest.mark.parametrize("name", JOBS)
def test_the_run_is_the_planners(stacks: dict[str, Stack], name: str) -> None:
    definition = definition_of(stacks[name])
    job, props = JOBS[name]
    layout = definition.run["layout"]
    gpus = layout["shard_gpus"] * layout["replicas"] * layout["tensor_parallel"]
    assert gpus == 8 * props["instance_count"]
    assert definition.run["tier"] == job.tier
    assert definition.run["train_tokens"] == props["train_tokens"]


def test_a_large_model_gets_as_many_instances_as_it_needs(
    stack: Stack, foundation: Foundation
) -> None:
    job = LargeShardedJob(stack, "Job", foundation=foundation, **LARGE)
    assert job.instance_count >= 2
    assert request_of(stack)["ResourceConfig"]["InstanceCount"] == job.instance_count


def test_fails_when_a_large_model_is_to_run_on_one_instance(
    stack: Stack, foundation: Foundation
) -> None:
    with pytest.raises(ValueError, match=r"LargeShardedJob.*2"):
        LargeShardedJob(stack, "Job", foundation=foundation, instance_count=1, **LARGE)


@pytest.mark.parametrize(
    ("job", "props", "named"),
    [
        (SmallModelJob, MID, "MidModelJob"),
        (MidModelJob, SMALL, "SmallModelJob"),
        (MidModelJob, LARGE, "LargeShardedJob"),
        (LargeShardedJob, MID, "MidModelJob"),
    ],
)
def test_fails_when_the_tier_is_wrong_and_names_the_right_one(
    stack: Stack, foundation: Foundation, job: Any, props: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        job(stack, "Job", foundation=foundation, **props)


@pytest.mark.parametrize("count", [3, 5, 6])
def test_fails_when_a_training_plan_cannot_have_so_many_instances(
    stack: Stack, foundation: Foundation, count: int
) -> None:
    batch = {"global_batch_tokens": 8192 * 8 * count}
    with pytest.raises(ValueError, match=rf"instance_count {count} .*1, 2, 4, 8, 16, 32, 64"):
        MidModelJob(
            stack,
            "Job",
            foundation=foundation,
            instance_count=count,
            capacity=Capacity.training_plan(PLAN),
            **{**MID, **batch},
        )


def test_more_instances_than_the_quota_are_warned_of(stack: Stack, foundation: Foundation) -> None:
    props = {**MID, "global_batch_tokens": 8192 * 8 * 32}
    MidModelJob(stack, "Job", foundation=foundation, instance_count=32, **props)
    found = Annotations.from_stack(stack).find_warning(
        "*", Match.string_like_regexp("32 instances are more than the 20")
    )
    assert len(found) == 1


def test_a_file_system_too_slow_for_the_checkpoints_is_told(
    stack: Stack, foundation: Foundation
) -> None:
    """64B on 1.2 TiB at 125 MB/s per TiB writes for an hour and a half."""
    LargeShardedJob(stack, "Job", foundation=foundation, **LARGE)
    words = Match.string_like_regexp(r"has 1200 GiB and 293 MB/s; planned are .*3 checkpoints")
    assert len(Annotations.from_stack(stack).find_warning("*", words)) == 1


def test_every_kind_of_warning_can_be_acknowledged_by_an_id_that_stays(
    stack: Stack, foundation: Foundation
) -> None:
    job = LargeShardedJob(stack, "Job", foundation=foundation, **LARGE)
    CdkAnnotations.of(job).acknowledge_warning("cdk-blackwell:file-system-size", "data is small")
    words = Match.string_like_regexp("the file system has")
    assert Annotations.from_stack(stack).find_warning("*", words) == []


def test_a_file_system_made_for_the_job_is_not(stack: Stack) -> None:
    need = storage_needs(LARGE["model"], instance_count=2, interval_seconds=900)
    foundation = Foundation(stack, "Made", availability_zone=ZONE, storage_needs=[need])
    LargeShardedJob(stack, "Job", foundation=foundation, **{**LARGE, "instance_count": 2})
    words = Match.string_like_regexp("the file system has")
    assert Annotations.from_stack(stack).find_warning("*", words) == []


def test_what_is_left_out_the_planner_fills_in(stack: Stack, foundation: Foundation) -> None:
    props = {
        key: value
        for key, value in COMMON.items()
        if key not in ("global_batch_tokens", "train_tokens")
    }
    job = MidModelJob(stack, "Job", foundation=foundation, model=MID["model"], **props)
    definition = definition_of(stack)
    assert definition.run["train_tokens"] == job.plan.train_tokens > 0
    assert definition.run["recipe"]["global_batch_tokens"] % 8192 == 0


def test_patience_with_a_hang_and_traffic_over_tcp_can_be_chosen(
    stack: Stack, foundation: Foundation
) -> None:
    LargeShardedJob(
        stack,
        "Job",
        foundation=foundation,
        hang_timeout=Duration.minutes(5),
        allow_tcp=True,
        **{**LARGE, "instance_count": 2},
    )
    assert definition_of(stack).run["limits"]["hang_seconds"] == 300
    assert request_of(stack)["Environment"]["CDKB_ALLOW_TCP"] == "1"


def test_fails_without_any_patience_with_a_hang(stack: Stack, foundation: Foundation) -> None:
    with pytest.raises(ValueError, match="hang_timeout 0 is not allowed: give 1 or more"):
        SmallModelJob(
            stack, "Job", foundation=foundation, hang_timeout=Duration.seconds(0), **SMALL
        )
