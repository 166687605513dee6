"""A job's container finds its contract: files, channels, environment, and leaves artefacts."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.local.sagemaker import channels
from cdk_blackwell.planning.contracts import NAMESPACE_OF_JOBS
from tests.local_aws.sagemaker.embedded import BUCKET, Sagemaker, python, s3_channel


def test_configuration_files(sagemaker: Sagemaker) -> None:
    sagemaker.put("data/a.txt")
    sagemaker.run(
        "true",
        HyperParameters={"sequence_length": "1024"},
        InputDataConfig=[s3_channel("dataset", f"s3://{BUCKET}/data")],
    )
    config = sagemaker.root("job") / "input" / "config"
    assert json.loads((config / "hyperparameters.json").read_text()) == {"sequence_length": "1024"}
    resources = json.loads((config / "resourceconfig.json").read_text())
    assert resources["current_host"] == "algo-1"
    assert resources["hosts"] == ["algo-1"]
    assert resources["current_instance_type"] == "ml.p6-b200.48xlarge"
    assert json.loads((config / "inputdataconfig.json").read_text()) == {
        "dataset": {
            "TrainingInputMode": "File",
            "RecordWrapperType": "None",
            "S3DistributionType": "FullyReplicated",
        }
    }


def test_channels_have_sagemakers_names(sagemaker: Sagemaker) -> None:
    for key in ("runs/a/run.json", "data/train/0.bin", "data/train/deep/1.bin", "data/train-2/x"):
        sagemaker.put(key, key)
    sagemaker.put("data/train/", "")  # a folder marker of the S3 console
    sagemaker.run(
        "true",
        InputDataConfig=[
            s3_channel("config", f"s3://{BUCKET}/runs/a/run.json"),
            s3_channel("folder", f"s3://{BUCKET}/data/train/"),
            s3_channel("beginning", f"s3://{BUCKET}/data/train-"),
        ],
    )
    data = sagemaker.root("job") / "input" / "data"
    files = {str(path.relative_to(data)): path.read_text() for path in data.rglob("*.*")}
    assert files == {
        "config/run.json": "runs/a/run.json",
        "folder/0.bin": "data/train/0.bin",
        "folder/deep/1.bin": "data/train/deep/1.bin",
    }
    assert (data / "beginning" / "train-2" / "x").read_text() == "data/train-2/x"


def test_empty_channel_fails_the_job_and_names_the_source(sagemaker: Sagemaker) -> None:
    job = sagemaker.run("true", InputDataConfig=[s3_channel("dataset", f"s3://{BUCKET}/nothing/")])
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("ClientError: Data download failed")
    assert f"s3://{BUCKET}/nothing/" in job["FailureReason"]
    assert sagemaker.states() == [("InProgress", "Starting"), ("Failed", "Failed")]


def test_environment(sagemaker: Sagemaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "1")
    show = "import json, os, sys; print(json.dumps([sys.executable, dict(os.environ)]))"
    sagemaker.run(python(show), Environment={"CDKB_RUN_ID": "a"})
    executable, environment = json.loads((sagemaker.folder("job") / "log.txt").read_text())
    assert Path(executable).parent == Path(sys.executable).parent
    expected = {
        "CDKB_RUN_ID": "a",
        "CDKB_ROOT": str(sagemaker.root("job")),
        "CDKB_PROCESSES_PER_HOST": "2",
        "AWS_ENDPOINT_URL": sagemaker.endpoint_url,
        "AWS_REGION": "us-west-2",
        "AWS_ACCESS_KEY_ID": "testing",
        "TRAINING_JOB_NAME": "job",
        "OMP_NUM_THREADS": "1",
    }
    assert {name: environment.get(name) for name in expected} == expected
    assert "SECRET_OF_THE_SERVER" not in environment


def test_isolated_container_has_no_credentials(sagemaker: Sagemaker) -> None:
    sagemaker.run("env", EnableNetworkIsolation=True)
    assert "AWS_ACCESS_KEY_ID" not in (sagemaker.folder("job") / "log.txt").read_text()


def test_artefacts_are_uploaded_as_they_are(sagemaker: Sagemaker) -> None:
    job = sagemaker.run(
        "mkdir $CDKB_ROOT/model/deep; echo weights > $CDKB_ROOT/model/deep/w;"
        "echo notes > $CDKB_ROOT/output/data/notes"
    )
    assert job["TrainingJobStatus"] == "Completed"
    assert sagemaker.keys() == ["out/job/output/data/notes", "out/job/output/model/deep/w"]
    assert sagemaker.read("out/job/output/model/deep/w") == "weights\n"
    assert job["ModelArtifacts"] == {"S3ModelArtifacts": f"s3://{BUCKET}/out/job/output/model/"}


def test_artefacts_are_packed_by_default(sagemaker: Sagemaker) -> None:
    job = sagemaker.run(
        "echo weights > $CDKB_ROOT/model/w", OutputDataConfig={"S3OutputPath": f"s3://{BUCKET}/o"}
    )
    assert sagemaker.keys() == ["o/job/output/model.tar.gz"]
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/o/job/output/model.tar.gz"
    body = sagemaker.s3.get_object(Bucket=BUCKET, Key="o/job/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        assert archive.getnames() == ["w"]


def test_failed_job_says_what_the_container_wrote(sagemaker: Sagemaker) -> None:
    job = sagemaker.run(
        "echo w > $CDKB_ROOT/model/w; echo d > $CDKB_ROOT/output/data/d;"
        "echo 'CDKB class=data step=3 rank=1: bad shard' > $CDKB_ROOT/output/failure; exit 7"
    )
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"] == (
        "AlgorithmError: CDKB class=data step=3 rank=1: bad shard, exit code: 7"
    )
    assert sagemaker.keys() == ["out/job/output/data/d"]


def test_long_failure_text_is_cut_to_what_sagemaker_keeps(sagemaker: Sagemaker) -> None:
    job = sagemaker.run(
        python("open('output/failure', 'w').write('x' * 9999); raise SystemExit(2)")
    )
    assert len(job["FailureReason"]) == 1024
    assert job["FailureReason"].endswith("x, exit code: 2")


def test_killed_container_has_the_exit_code_of_its_signal(sagemaker: Sagemaker) -> None:
    assert sagemaker.run("kill -KILL $$")["FailureReason"] == "AlgorithmError: , exit code: 137"


def test_entrypoint_that_does_not_exist(sagemaker: Sagemaker) -> None:
    algorithm = {
        "TrainingImage": "image:1",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["/no/such/program"],
    }
    job = sagemaker.run("", AlgorithmSpecification=algorithm)
    assert job["FailureReason"] == "AlgorithmError: , exit code: 127"
    assert "cannot start '/no/such/program'" in (sagemaker.folder("job") / "log.txt").read_text()


def test_image_without_a_command_is_refused(sagemaker: Sagemaker) -> None:
    algorithm = {"TrainingImage": "image:1", "TrainingInputMode": "File"}
    job = sagemaker.run("", AlgorithmSpecification=algorithm)
    assert "give AlgorithmSpecification.ContainerEntrypoint" in job["FailureReason"]


def test_output_goes_to_cloudwatch_logs_and_metrics_are_found_in_it(sagemaker: Sagemaker) -> None:
    definition = {"Name": "train:loss", "Regex": '"loss": ([0-9.]+)'}
    algorithm: dict[str, Any] = {
        "TrainingImage": "image:1",
        "TrainingInputMode": "File",
        "MetricDefinitions": [definition],
        "ContainerEntrypoint": ["/bin/bash", "-c"],
        "ContainerArguments": [
            """echo '{"loss": 9.5}'; echo to stderr >&2; echo -n '{"loss": 4.25}'"""
        ],
    }
    job = sagemaker.run("", AlgorithmSpecification=algorithm)
    logs = sagemaker.client("logs")
    (stream,) = logs.describe_log_streams(
        logGroupName=NAMESPACE_OF_JOBS, logStreamNamePrefix="job/algo-1-"
    )["logStreams"]
    events = logs.get_log_events(
        logGroupName=NAMESPACE_OF_JOBS, logStreamName=stream["logStreamName"], startFromHead=True
    )["events"]
    assert [event["message"] for event in events] == [
        '{"loss": 9.5}',
        "to stderr",
        '{"loss": 4.25}',
    ]
    (metric,) = job["FinalMetricDataList"]
    assert (metric["MetricName"], metric["Value"]) == ("train:loss", 4.25)


def test_full_disk_fails_the_job_before_anything_is_copied(
    sagemaker: Sagemaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "DISK_RESERVE_BYTES", 2**60)
    sagemaker.put("data/a.txt")
    job = sagemaker.run("true", InputDataConfig=[s3_channel("dataset", f"s3://{BUCKET}/data/")])
    assert job["FailureReason"].startswith("ClientError: not enough disk")
    assert not (sagemaker.root("job") / "input" / "data" / "dataset").exists()
