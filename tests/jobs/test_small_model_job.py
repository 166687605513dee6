"""SmallModelJob in a stack of one's own: alone, twice, with what already exists, subclassed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Match, Template

import cdk_blackwell.jobs.bundle as bundle
from cdk_blackwell import (
    Capacity,
    CheckpointStore,
    Foundation,
    ModelShape,
    PlanError,
    SharedFileSystem,
    SmallModelJob,
    TrainingImage,
    TrainingJob,
)
from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.plan import make_plan

PROPS: dict[str, Any] = {
    "model": ModelShape.preset("llama-3.2-1b"),
    "dataset_prefix": "tokens/",
    "sequence_length": 8192,
    "global_batch_tokens": 1_048_576,
    "train_tokens": 10_000_000_000,
    "packages_in_image": True,
    "waive_cost_ceiling": True,
}


def definitions(template: Template) -> list[str]:
    return [
        json.dumps(run["Properties"]["Definition"])
        for run in template.find_resources("Custom::CdkBlackwellRun").values()
    ]


def test_two_jobs_in_one_stack_share_nothing_but_the_foundation(
    stack: Stack, foundation: Foundation
) -> None:
    first = SmallModelJob(stack, "First", foundation=foundation, **PROPS)
    second = SmallModelJob(stack, "Second", foundation=foundation, **PROPS)
    assert (first.job_name, second.job_name) == ("Mine-First", "Mine-Second")
    template = Template.from_stack(stack)
    template.resource_count_is("Custom::CdkBlackwellRun", 2)
    assert {o for o in template.to_json()["Outputs"] if o.startswith("CdkBlackwell")} == {
        "CdkBlackwellMineFirst",
        "CdkBlackwellMineSecond",
    }


def test_fails_when_two_jobs_take_one_name(stack: Stack, foundation: Foundation) -> None:
    SmallModelJob(stack, "First", foundation=foundation, job_name="same", **PROPS)
    with pytest.raises(ValueError, match="'same' is used by Mine/First and Mine/Second"):
        SmallModelJob(stack, "Second", foundation=foundation, job_name="same", **PROPS)


@pytest.mark.parametrize(("first", "second"), [("train", "train-b"), ("Train-B", "train")])
def test_fails_when_one_jobs_events_would_reach_another(
    stack: Stack, foundation: Foundation, first: str, second: str
) -> None:
    """The rule of ``train`` matches every training job whose name begins with ``train-``."""
    SmallModelJob(stack, "First", foundation=foundation, job_name=first, **PROPS)
    with pytest.raises(ValueError, match=r"begins with job_name 'train' and a hyphen.*Mine/First"):
        SmallModelJob(stack, "Second", foundation=foundation, job_name=second, **PROPS)


def test_names_that_give_one_output_need_stacks_of_their_own(
    stack: Stack, foundation: Foundation
) -> None:
    SmallModelJob(stack, "First", foundation=foundation, job_name="train-a", **PROPS)
    with pytest.raises(ValueError, match=r"give one stack output, CdkBlackwelltraina, since"):
        SmallModelJob(stack, "Second", foundation=foundation, job_name="traina", **PROPS)


def test_names_that_only_begin_alike_are_two_jobs(stack: Stack, foundation: Foundation) -> None:
    for name in ("train", "train2", "training-b"):
        SmallModelJob(stack, name, foundation=foundation, job_name=name, **PROPS)


def test_a_long_path_gives_a_short_stable_name(stack: Stack, foundation: Foundation) -> None:
    job = SmallModelJob(stack, "AVeryLongNameOfOneTrainingJob", foundation=foundation, **PROPS)
    assert job.job_name == "Mine-AVeryLongN-" + job.job_name[-6:]
    assert len(job.job_name) == 22


def test_existing_network_file_system_and_bucket_are_used(stack: Stack) -> None:
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-west-2b"]
    )
    subnet = ec2.Subnet.from_subnet_attributes(
        stack, "Subnet", subnet_id="subnet-1", availability_zone="us-west-2b"
    )
    file_system = SharedFileSystem.from_attributes(
        file_system_id="fs-0123456789abcdef0",
        mount_name="abcdefgh",
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1"),
        availability_zone="us-west-2b",
        dataset_bucket=s3.Bucket.from_bucket_name(stack, "Data", "my-data"),
        dataset_path="/mine/",
    )
    store = CheckpointStore.from_bucket(s3.Bucket.from_bucket_name(stack, "Runs", "my-runs"))
    SmallModelJob(
        stack,
        "Job",
        vpc=vpc,
        subnet=subnet,
        file_system=file_system,
        checkpoint_store=store,
        **PROPS,
    )
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::FSx::FileSystem", 0)
    (definition,) = definitions(template)
    assert "/abcdefgh/mine/tokens" in definition
    assert "my-runs" in definition
    assert "KmsKeyId" not in definition


def test_fails_without_foundation_or_parts(stack: Stack) -> None:
    with pytest.raises(ValueError, match="vpc is missing: give foundation"):
        SmallModelJob(stack, "Job", **PROPS)


def test_fails_when_the_file_system_is_in_another_zone(
    stack: Stack, foundation: Foundation
) -> None:
    elsewhere = ec2.Subnet.from_subnet_attributes(
        stack, "Elsewhere", subnet_id="subnet-2", availability_zone="us-west-2c"
    )
    with pytest.raises(ValueError, match=r"file system is in us-west-2b.*subnet in us-west-2c"):
        SmallModelJob(stack, "Job", foundation=foundation, subnet=elsewhere, **PROPS)


def test_fails_when_the_subnet_is_of_another_vpc(stack: Stack, foundation: Foundation) -> None:
    elsewhere = ec2.Vpc(
        stack, "Elsewhere", availability_zones=["us-west-2b"], nat_gateways=0
    ).public_subnets[0]
    with pytest.raises(ValueError, match="is not of vpc Mine/Foundation/Network"):
        SmallModelJob(stack, "Job", foundation=foundation, subnet=elsewhere, **PROPS)


def test_a_vpc_made_in_the_same_app_is_taken_with_its_subnet(
    stack: Stack, foundation: Foundation
) -> None:
    vpc = ec2.Vpc(stack, "Own", availability_zones=["us-west-2b"], nat_gateways=0)
    subnet = vpc.public_subnets[0]
    job = SmallModelJob(stack, "Job", foundation=foundation, vpc=vpc, subnet=subnet, **PROPS)
    assert job.subnet is subnet


def test_a_bootstrap_buckets_own_key_may_be_used_by_the_controller(
    stack: Stack, foundation: Foundation
) -> None:
    arn = "arn:aws:kms:us-west-2:123456789012:key/11111111-2222-3333-4444-555555555555"
    key = kms.Key.from_key_arn(stack, "AssetKey", arn)
    SmallModelJob(stack, "Job", foundation=foundation, asset_key=key, **PROPS)
    policies = Template.from_stack(stack).find_resources("AWS::IAM::Policy")
    holders = [name for name, policy in policies.items() if arn in json.dumps(policy)]
    assert len(holders) == 1
    assert "ControllerPolicy" in holders[0]


def test_fails_above_7b_and_names_the_construct_for_it(
    stack: Stack, foundation: Foundation
) -> None:
    props = {**PROPS, "model": ModelShape.preset("llama-3.1-8b")}
    with pytest.raises(ValueError, match=r"8\.03B parameters.*use MidModelJob"):
        SmallModelJob(stack, "Job", foundation=foundation, **props)


def test_fails_when_the_plan_is_refused(stack: Stack, foundation: Foundation) -> None:
    with pytest.raises(PlanError, match="instance_count is 2"):
        SmallModelJob(stack, "Job", foundation=foundation, instance_count=2, **PROPS)


def test_fails_when_a_limit_of_sagemaker_is_broken(stack: Stack, foundation: Foundation) -> None:
    with pytest.raises(ValueError, match=r"Environment\.LONG is '513 characters'.*0 to 512"):
        SmallModelJob(stack, "Job", foundation=foundation, environment={"LONG": "x" * 513}, **PROPS)


def test_fails_when_the_environment_takes_this_librarys_names(
    stack: Stack, foundation: Foundation
) -> None:
    with pytest.raises(ValueError, match="'CDKB_ROOT' is set by this library"):
        SmallModelJob(stack, "Job", foundation=foundation, environment={"CDKB_ROOT": "/x"}, **PROPS)


@pytest.mark.parametrize("name", ["HF_TOKEN", "wandb_api_key", "AWS_SECRET_ACCESS_KEY"])
def test_fails_when_a_secret_is_put_into_the_environment(
    stack: Stack, foundation: Foundation, name: str
) -> None:
    with pytest.raises(ValueError, match=f"'{name}' looks like a secret.*Secrets Manager"):
        SmallModelJob(stack, "Job", foundation=foundation, environment={name: "x"}, **PROPS)


def test_a_name_that_only_contains_such_a_word_is_taken(
    stack: Stack, foundation: Foundation
) -> None:
    given = {"TOKENIZERS_PARALLELISM": "false"}
    job = SmallModelJob(stack, "Job", foundation=foundation, environment=given, **PROPS)
    assert job.environment == given


def test_a_training_plan_is_asked_for_by_its_arn(stack: Stack, foundation: Foundation) -> None:
    arn = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/mine"
    SmallModelJob(
        stack,
        "Job",
        foundation=foundation,
        capacity=Capacity.training_plan(arn, max_pending=Duration.days(2)),
        **PROPS,
    )
    (definition,) = definitions(Template.from_stack(stack))
    assert "TrainingPlanArn" in definition
    assert arn in definition
    assert "172800" in definition


def test_an_own_image_in_ecr_may_be_pulled(stack: Stack, foundation: Foundation) -> None:
    uri = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/train:1"
    SmallModelJob(stack, "Job", foundation=foundation, image=TrainingImage.from_uri(uri), **PROPS)
    template = Template.from_stack(stack)
    assert uri in definitions(template)[0]
    assert ":ecr:us-west-2:123456789012:repository/team/train" in json.dumps(template.to_json())


def test_grants_reach_the_controller_and_this_jobs_runs(
    stack: Stack, foundation: Foundation
) -> None:
    job = SmallModelJob(stack, "Job", foundation=foundation, **PROPS)
    ci = iam.Role(stack, "Ci", assumed_by=iam.AccountRootPrincipal())
    assert job.grant_start(ci).success
    assert job.grant_read_checkpoints(ci).success
    template = Template.from_stack(stack)
    policy = next(
        json.dumps(p)
        for name, p in template.find_resources("AWS::IAM::Policy").items()
        if name.startswith("Ci")
    )
    assert "lambda:InvokeFunction" in policy
    assert "/Mine-Job/runs/*" in policy


def test_others_can_listen_to_the_jobs_states(stack: Stack, foundation: Foundation) -> None:
    job = SmallModelJob(stack, "Job", foundation=foundation, **PROPS)
    job.on_state_change("Done", statuses=["Completed"])
    assert job.connections.security_groups == [job.security_group]
    metric = job.metric_tokens_per_second()
    assert metric.metric_name == "TokensPerSecond"
    assert metric.dimensions == {"Job": "Mine-Job", "Tier": "small"}
    Template.from_stack(stack).has_resource_properties(
        "AWS::Events::Rule",
        {
            "EventPattern": Match.object_like(
                {
                    "detail": {"TrainingJobName": [{"prefix": "Mine-Job-"}]}
                    | {"TrainingJobStatus": ["Completed"]}
                }
            )
        },
    )


def test_a_subclass_with_a_tier_is_a_job(stack: Stack, foundation: Foundation) -> None:
    class Own(TrainingJob):
        tier: Tier = "small"

    assert Own(stack, "Job", foundation=foundation, **PROPS).plan.tier == "small"


def test_a_comment_in_a_training_script_changes_only_the_assets_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code change alone is a new asset and never a new run."""
    templates = []
    for number, text in enumerate(["print(1)\n", "print(1)  # a comment\n"]):
        source = tmp_path / f"scripts-{number}"
        source.mkdir()
        (source / "launch.py").write_text(text)
        original = bundle.write_bundle
        monkeypatch.setattr(
            bundle,
            "write_bundle",
            lambda folder, *, wheels, source=source, original=original: original(
                folder, wheels=wheels, source=source
            ),
        )
        app = App(outdir=str(tmp_path / f"out-{number}"))
        stack = Stack(app, "Mine", env=Environment(region="us-west-2"))
        job = SmallModelJob(
            stack,
            "Job",
            foundation=Foundation(stack, "Foundation", availability_zone="us-west-2b"),
            run_id="one",
            **PROPS,
        )
        text_of_template = json.dumps(Template.from_stack(stack).to_json())
        templates.append((job.definition.bundle.key, text_of_template))
        monkeypatch.undo()
    (first_key, first), (second_key, second) = templates
    assert first_key != second_key
    assert first.replace(first_key, second_key) == second


def test_the_plan_is_the_planners_own(stack: Stack, foundation: Foundation) -> None:
    job = SmallModelJob(stack, "Job", foundation=foundation, **PROPS)
    others = ("dataset_prefix", "packages_in_image", "waive_cost_ceiling")
    asked = {key: value for key, value in PROPS.items() if key not in others}
    assert job.plan == make_plan(tier="small", **asked)
