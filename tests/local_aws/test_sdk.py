"""The bridge to the SageMaker SDK, with the real SDK, on a really deployed job."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdk_blackwell.local.aws import LocalAws
from tests.local_aws.scripted import NEEDS_CDK, ROOT, Scripted

pytest.importorskip("sagemaker.train", reason="the extra [sdk] is not installed")

from sagemaker.core.training.configs import SourceCode
from sagemaker.train import ModelTrainer

from cdk_blackwell.sdk import CommandError, ConnectedJob, RefusedError, connect

pytestmark = [pytest.mark.slow, NEEDS_CDK]
ONE_STEP = 1_048_576
NOTEBOOK = ROOT / "examples" / "sdk_notebook" / "runs.ipynb"


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    folder = tmp_path_factory.mktemp("sdk")
    settings = folder / "sagemaker.yaml"
    # The SDK's own words for no telemetry: nothing here may leave this machine.
    settings.write_text(
        "SchemaVersion: '1.0'\nSageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}\n"
    )
    with LocalAws(state_dir=folder / "aws") as aws, pytest.MonkeyPatch.context() as patch:
        made = Scripted(aws, folder)
        made.set_up()
        made.deploy("First")
        made.environment["SAGEMAKER_USER_CONFIG_OVERRIDE"] = str(settings)
        for name, value in made.environment.items():
            if name.startswith(("AWS_", "SAGEMAKER_")) or name == "HOME":
                patch.setenv(name, value)
        yield made


@pytest.fixture
def job(scripted: Scripted) -> ConnectedJob:
    return connect("First")


def test_a_variation_is_launched_followed_and_its_artefacts_found(
    scripted: Scripted, job: ConnectedJob, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = {"train_tokens": 3 * ONE_STEP, "recipe.seed": 7}
    training_job = job.start("variation", overrides=overrides)
    with caplog.at_level(logging.INFO):
        logging.getLogger("sagemaker").addHandler(caplog.handler)
        training_job.wait(poll=1, logs=True)
    assert training_job.training_job_status == "Completed"
    assert "run variation" in caplog.text
    bucket, _, prefix = training_job.model_artifacts.s3_model_artifacts[5:].partition("/")
    weights = scripted.aws.client("s3").get_object(Bucket=bucket, Key=f"{prefix}weights")
    assert weights["Body"].read() == b"variation 3"
    frozen = scripted.aws.client("s3").get_object(
        Bucket=bucket, Key="first/runs/variation/run.json"
    )
    assert json.loads(frozen["Body"].read())["recipe"]["seed"] == 7


def test_a_preview_launches_nothing_and_what_is_refused_says_why(
    scripted: Scripted, job: ConnectedJob
) -> None:
    before = scripted.training_jobs()
    seen = job.preview("later")
    assert seen.request is not None
    assert "-later-1" in seen.request["TrainingJobName"]
    with pytest.raises(RefusedError, match=r"recipe\.colour"):
        job.start("later", overrides={"recipe.colour": 1})
    with pytest.raises(CommandError, match="never launched"):
        job.training_job("later")
    assert scripted.training_jobs() == before


def test_a_stopped_run_is_found_again_by_its_id(job: ConnectedJob) -> None:
    started = job.start("to-stop")
    assert job.stop("to-stop").state == "stopping"
    found = job.training_job("to-stop")
    found.wait(poll=1)
    assert found.get_name() == started.get_name()
    assert found.training_job_status == "Stopped"


def test_own_code_is_sent_to_where_the_job_runs(
    scripted: Scripted, job: ConnectedJob, tmp_path: Path
) -> None:
    """The request only: the SDK's scripts name ``/opt/ml``, which lies elsewhere here."""
    (tmp_path / "train.py").write_text("print('own code')")
    trainer = job.model_trainer(
        source_code=SourceCode(source_dir=str(tmp_path), entry_script="train.py")
    )
    assert isinstance(trainer, ModelTrainer)
    trainer.train(wait=False)
    own = trainer._latest_training_job
    runs_request = job.preview("compared").request
    assert runs_request is not None
    request = scripted.aws.client("sagemaker").describe_training_job(
        TrainingJobName=own.training_job_name
    )
    for member in ("ResourceConfig", "VpcConfig", "RoleArn", "StoppingCondition"):
        assert request[member] == runs_request[member], member
    channels = {one["ChannelName"]: one["DataSource"] for one in request["InputDataConfig"]}
    (dataset,) = (
        one["DataSource"]
        for one in runs_request["InputDataConfig"]
        if one["ChannelName"] == "dataset"
    )
    assert channels["dataset"] == dataset
    bucket = job.deployed.output.checkpoint_bucket
    assert channels["code"]["S3DataSource"]["S3Uri"].startswith(
        f"s3://{bucket}/first/runs/_own-code/"
    )
    assert "CDKB_RUN_ID" not in request["Environment"]
    assert request["OutputDataConfig"]["S3OutputPath"].startswith(
        f"s3://{bucket}/first/runs/_own-code/"
    )


def test_the_notebook_runs_from_top_to_bottom(scripted: Scripted, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    done = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    ).execute()
    said = json.dumps(done.cells)
    assert "Completed" in said
    assert "s3://" in said
