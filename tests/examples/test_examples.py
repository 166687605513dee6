"""Every example synthesises, and does what its text says."""

from __future__ import annotations

import json
import runpy
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import aws_cdk
import boto3
import pytest
from moto import mock_aws

from cdk_blackwell.lifecycle.handler.definition import RESOURCE_TYPE
from cdk_blackwell.planning.records import Progress
from tests.documentation.commands import check_own

EXAMPLES = Path(__file__).parents[2] / "examples"
APPS = sorted(EXAMPLES.glob("*/app.py"))

Templates = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Templates]:
    """Templates of an example by stack name; each example is run once."""
    made: dict[str, Templates] = {}

    def synthesise(name: str) -> Templates:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            with pytest.MonkeyPatch.context() as patch:
                # jsii's process has the environment it was started with: CDK_OUTDIR comes too late.
                patch.setattr(aws_cdk, "App", partial(aws_cdk.App, outdir=str(folder)))
                runpy.run_path(str(EXAMPLES / name / "app.py"), run_name="__main__")
            told = "".join(path.read_text() for path in folder.glob("*.metadata.json"))
            for warning in ("run-time", "file-system-size"):
                assert f"cdk-blackwell:{warning}" not in told, f"who copies {name} loses a run"
            made[name] = {
                path.name.removesuffix(".template.json"): json.loads(path.read_text())
                for path in folder.glob("*.template.json")
            }
        return made[name]

    return synthesise


def runs(templates: Templates) -> list[dict[str, Any]]:
    """Properties of the run of every job of an example."""
    return [
        resource["Properties"]
        for template in templates.values()
        for resource in template["Resources"].values()
        if resource["Type"] == RESOURCE_TYPE
    ]


def resource_types(templates: Templates) -> set[str]:
    return {r["Type"] for t in templates.values() for r in t["Resources"].values()}


@pytest.mark.parametrize("name", [path.parent.name for path in APPS])
def test_it_defines_a_job_and_launches_nothing(
    templates: Callable[[str], Templates], name: str
) -> None:
    found = runs(templates(name))
    assert found
    assert all("RunId" not in run for run in found)


@pytest.mark.parametrize("path", APPS, ids=lambda path: path.parent.name)
def test_it_is_listed(path: Path) -> None:
    assert f"| `{path.parent.name}` |" in (EXAMPLES / "README.md").read_text()


def test_a_team_class_changes_recipe_policy_and_environment(
    templates: Callable[[str], Templates],
) -> None:
    found = templates("subclass")
    text = json.dumps(found)
    assert "fp8_rowwise" in text
    assert "dynamodb:PutItem" in text
    assert "EXPERIMENTS" in json.dumps(runs(found))


def test_imported_parts_make_nothing_that_holds_data(
    templates: Callable[[str], Templates],
) -> None:
    made = resource_types(templates("imported_parts"))
    assert not made & {
        "AWS::EC2::Subnet",
        "AWS::EC2::VPC",
        "AWS::FSx::FileSystem",
        "AWS::KMS::Key",
        "AWS::S3::Bucket",
        "AWS::SNS::Topic",
    }


def test_an_own_script_travels_in_a_channel_and_is_started(
    templates: Callable[[str], Templates],
) -> None:
    text = json.dumps(runs(templates("own_entrypoint")))
    assert "exec torchrun" in text
    assert "launch.py" not in text
    assert r"ChannelName\": \"script".replace(": ", ":") in text


@mock_aws
def test_the_own_script_resumes_and_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state.json").write_text('{"step": 40}')
    script = EXAMPLES / "own_entrypoint" / "script" / "train.py"
    monkeypatch.setenv("CDKB_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("CDKB_RUN_S3", "s3://team-runs/train/runs/first")
    monkeypatch.setenv("CDKB_ATTEMPT", "2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = boto3.client("s3")
    client.create_bucket(Bucket="team-runs")
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    signal.signal(signal.SIGTERM, handler)
    assert ended.value.code == 0
    assert json.loads((tmp_path / "state.json").read_text()) == {"step": 100}
    written = client.get_object(Bucket="team-runs", Key="train/runs/first/progress.json")
    progress = Progress.from_json(written["Body"].read())
    assert (progress.attempt, progress.last_complete_step) == (2, 100)


def test_an_own_image_is_pinned_by_digest_and_pulled_from_its_account(
    templates: Callable[[str], Templates],
) -> None:
    text = json.dumps(templates("own_image"))
    assert "training@sha256:0123456789abcdef" in text
    assert "arn:aws:ecr:us-west-2:210987654321:repository/training" in text


def test_every_region_pulls_its_own_image(templates: Callable[[str], Templates]) -> None:
    found = templates("multi_region")
    assert set(found) == {"Train-us-west-2", "Train-us-east-1"}
    for region in ("us-west-2", "us-east-1"):
        assert f".dkr.ecr.{region}." in json.dumps(runs({"it": found[f"Train-{region}"]}))


def test_a_schedule_starts_runs_and_failures_reach_own_code(
    templates: Callable[[str], Templates],
) -> None:
    found = templates("scheduled_runs")
    rules = [
        resource["Properties"]
        for template in found.values()
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Events::Rule"
    ]
    (weekly,) = [r for r in rules if r.get("ScheduleExpression") == "cron(0 2 ? * SUN *)"]
    assert weekly["Targets"][0]["InputTransformer"]["InputTemplate"] == (
        '{"schedule":"weekly","time":<time>,"id":<id>}'
    )
    (failed,) = [r for r in rules if r.get("EventPattern", {}).get("source") == ["cdk-blackwell"]]
    assert failed["EventPattern"]["detail"]["what"] == ["failed", "could not be launched"]


def as_bash_reads_it(line: str, **environment: str) -> list[str]:
    """The words of a command, variables filled in."""
    command = ["bash", "-c", f"printf '%s\\n' {line}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def of_type(templates: Templates, kind: str) -> dict[str, dict[str, Any]]:
    """Properties of the pipeline's own resources by name."""
    resources = templates["Pipeline"]["Resources"]
    return {n: r["Properties"] for n, r in resources.items() if r["Type"] == kind}


def test_the_pipeline_asks_between_the_trial_and_the_run(
    templates: Callable[[str], Templates],
) -> None:
    (pipeline,) = of_type(templates("pipeline"), "AWS::CodePipeline::Pipeline").values()
    stages = [stage["Name"] for stage in pipeline["Stages"]]
    assert stages == ["Source", "Deploy", "Trial", "Approve", "Train"]
    (source,) = pipeline["Stages"][0]["Actions"]
    assert source["Configuration"]["BranchName"] == "main"


def test_the_pipelines_commands_are_the_command_lines_own(
    templates: Callable[[str], Templates],
) -> None:
    specs = [
        json.loads(project["Source"]["BuildSpec"])["phases"]["build"]["commands"]
        for project in of_type(templates("pipeline"), "AWS::CodeBuild::Project").values()
    ]
    lines = [line.partition(" > ")[0] for spec in specs for line in spec]
    ours = [line for line in lines if line.startswith("cdk-blackwell ")]
    assert [line.split()[1] for line in ours] == ["trial", "start"]
    for line in ours:
        check_own(as_bash_reads_it(line, EXECUTION="0a1b2c3d-1111-2222-3333-444455556666")[1:])


LOGS = {"logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"}
REPORTS = {f"codebuild:{verb}Report" for verb in ("Create", "Update")} | {
    f"codebuild:{verb}" for verb in ("CreateReportGroup", "BatchPutTestCases")
}
ASK = {
    "lambda:InvokeFunction",
    "dynamodb:GetItem",
    "dynamodb:Query",
    "cloudformation:DescribeStacks",
}


def test_every_step_of_the_pipeline_has_the_rights_it_needs_and_no_more(
    templates: Callable[[str], Templates],
) -> None:
    rights: dict[str, set[str]] = {}
    for name, policy in of_type(templates("pipeline"), "AWS::IAM::Policy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            rights.setdefault(name.partition("Build")[0], set()).update(
                [actions] if isinstance(actions, str) else actions
            )
    of_every_step = LOGS | REPORTS | {"codebuild:BatchPutCodeCoverages"}

    def own(step: str) -> set[str]:
        actions = rights[step] - of_every_step
        return {each for each in actions if each.partition(":")[0] not in ("s3", "kms")}

    assert own("Deploy") == {"sts:AssumeRole"}
    assert own("Trial") == ASK | {"sagemaker:DescribeTrainingJob"}
    assert own("Train") == ASK | {"sts:AssumeRole"}
    assert "codeconnections:UseConnection" in set().union(*rights.values())


def test_the_pipelines_run_follows_the_trial_that_lies_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trial.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="trial"):
        runpy.run_path(str(EXAMPLES / "pipeline" / "app.py"), run_name="__main__")
