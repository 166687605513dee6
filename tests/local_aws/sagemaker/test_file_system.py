"""A job in the whole embedded AWS reads its data through FSx, as the constructs ask for it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from cdk_blackwell.local.aws import LocalAws
from tests.local_aws.sagemaker.embedded import BUCKET, ENDS, REGION, request


def test_job_reads_its_dataset_through_the_association(tmp_path: Path) -> None:
    with LocalAws(state_dir=tmp_path) as aws:
        s3, fsx, sagemaker = (aws.client(name) for name in ("s3", "fsx", "sagemaker"))
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket=BUCKET, Key="tokens/manifest.json", Body=b"{}")
        (subnet, *_) = aws.client("ec2").describe_subnets()["Subnets"]
        system = fsx.create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=1200,
            SubnetIds=[subnet["SubnetId"]],
            LustreConfiguration={
                "DeploymentType": "PERSISTENT_2",
                "PerUnitStorageThroughput": 125,
            },
        )["FileSystem"]
        fsx.create_data_repository_association(
            FileSystemId=system["FileSystemId"],
            FileSystemPath="/dataset",
            DataRepositoryPath=f"s3://{BUCKET}/",
        )
        mount = system["LustreConfiguration"]["MountName"]
        channel = {
            "ChannelName": "dataset",
            "DataSource": {
                "FileSystemDataSource": {
                    "FileSystemId": system["FileSystemId"],
                    "FileSystemType": "FSxLustre",
                    "FileSystemAccessMode": "ro",
                    "DirectoryPath": f"/{mount}/dataset/tokens",
                }
            },
        }
        show = "cat $CDKB_ROOT/input/data/dataset/manifest.json"
        sagemaker.create_training_job(**request(show, InputDataConfig=[channel]))
        deadline = time.monotonic() + 60
        while True:
            job = sagemaker.describe_training_job(TrainingJobName="job")
            if job["TrainingJobStatus"] in ENDS:
                break
            assert time.monotonic() < deadline, job
            time.sleep(0.1)
        assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
        assert json.loads((tmp_path / "training-jobs" / "job" / "log.txt").read_text()) == {}
