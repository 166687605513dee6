"""Checkpoints are restored and synchronised; file-system channels come from their associations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.local.sagemaker.errors import JobFailedError
from cdk_blackwell.local.sagemaker.file_system import resolve_directory
from cdk_blackwell.local.sagemaker.s3 import Mirror, S3File, S3Uri, download
from cdk_blackwell.local.sagemaker.settings import Clients
from tests.local_aws.sagemaker.embedded import BUCKET, Sagemaker, wait_until

CHECKPOINTS = {"S3Uri": f"s3://{BUCKET}/run/checkpoints/", "LocalPath": "/opt/ml/checkpoints"}


class FakeFsx:
    """One file system, as FSx describes it."""

    def __init__(self, associations: dict[str, str], events: tuple[str, ...] = ()) -> None:
        self._associations = associations
        self._events = list(events)

    def describe_file_systems(self, **query: Any) -> dict[str, Any]:
        return {
            "FileSystems": [
                {
                    "FileSystemId": query["FileSystemIds"][0],
                    "Lifecycle": "AVAILABLE",
                    "LustreConfiguration": {"MountName": "abcdef"},
                }
            ]
        }

    def describe_data_repository_associations(self, **query: Any) -> dict[str, Any]:
        return {
            "Associations": [
                {
                    "FileSystemPath": path,
                    "DataRepositoryPath": uri,
                    "S3": {"AutoExportPolicy": {"Events": self._events}},
                }
                for path, uri in self._associations.items()
            ]
        }


def source(path: str, mode: str = "ro") -> dict[str, Any]:
    return {
        "FileSystemId": "fs-0123456789abcdef0",
        "FileSystemType": "FSxLustre",
        "FileSystemAccessMode": mode,
        "DirectoryPath": path,
    }


def lustre_channel(path: str, mode: str = "ro") -> dict[str, Any]:
    return {
        "ChannelName": "dataset",
        "DataSource": {"FileSystemDataSource": source(path, mode)},
    }


@pytest.fixture
def use_fsx(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give jobs a file system while S3 and the logs stay the server's."""
    connect = Clients.connect

    def use(fsx: FakeFsx) -> None:
        def connected(*, endpoint_url: str, region: str) -> Clients:
            real = connect(endpoint_url=endpoint_url, region=region)
            return Clients(s3=real.s3, logs=real.logs, fsx=fsx)

        monkeypatch.setattr(Clients, "connect", connected)

    return use


def test_checkpoints_of_an_earlier_attempt_are_there_at_start(sagemaker: Sagemaker) -> None:
    sagemaker.put("run/checkpoints/step-1/shard", "old")
    sagemaker.run("cat $CDKB_ROOT/checkpoints/step-1/shard", CheckpointConfig=CHECKPOINTS)
    assert (sagemaker.folder("job") / "log.txt").read_text() == "old"
    assert sagemaker.keys("run/") == ["run/checkpoints/step-1/shard"]


def test_checkpoints_reach_s3_while_the_job_runs(sagemaker: Sagemaker) -> None:
    sagemaker.start("echo one > $CDKB_ROOT/checkpoints/a; sleep 1000", CheckpointConfig=CHECKPOINTS)
    wait_until(lambda: sagemaker.keys("run/") == ["run/checkpoints/a"])
    assert sagemaker.describe()["TrainingJobStatus"] == "InProgress"


def test_changes_and_deletions_reach_s3_at_the_end(sagemaker: Sagemaker) -> None:
    sagemaker.put("run/checkpoints/step-1/shard", "old")
    sagemaker.put("run/checkpoints/latest", "step-1")
    sagemaker.run(
        "cd $CDKB_ROOT/checkpoints; rm -r step-1; mkdir step-2; echo new > step-2/shard;"
        "echo step-2 > latest",
        CheckpointConfig=CHECKPOINTS,
    )
    assert sagemaker.keys("run/") == ["run/checkpoints/latest", "run/checkpoints/step-2/shard"]
    assert sagemaker.read("run/checkpoints/latest") == "step-2\n"


def test_checkpoints_of_a_killed_container_are_kept(sagemaker: Sagemaker) -> None:
    job = sagemaker.run(
        "echo one > $CDKB_ROOT/checkpoints/a; kill -KILL $$", CheckpointConfig=CHECKPOINTS
    )
    assert job["TrainingJobStatus"] == "Failed"
    assert sagemaker.keys("run/") == ["run/checkpoints/a"]


def test_checkpoint_path_outside_the_container_is_refused(sagemaker: Sagemaker) -> None:
    job = sagemaker.run("true", CheckpointConfig={**CHECKPOINTS, "LocalPath": "/etc/checkpoints"})
    assert "'/etc/checkpoints' lies outside /opt/ml" in job["FailureReason"]


def test_lustre_channel_is_filled_from_its_association(sagemaker: Sagemaker, use_fsx: Any) -> None:
    use_fsx(FakeFsx({"/data": f"s3://{BUCKET}/datasets/"}))
    sagemaker.put("datasets/tokens/manifest.json", "{}")
    sagemaker.put("datasets/tokens/train/0.bin", "0")
    sagemaker.put("datasets/tokens-2/other", "x")
    sagemaker.run(
        "cd $CDKB_ROOT/input/data/dataset; find . -type f | sort",
        InputDataConfig=[lustre_channel("/abcdef/data/tokens")],
    )
    found = (sagemaker.folder("job") / "log.txt").read_text().split()
    assert found == ["./manifest.json", "./train/0.bin"]


def test_writable_lustre_channel_is_exported(sagemaker: Sagemaker, use_fsx: Any) -> None:
    use_fsx(FakeFsx({"/data": f"s3://{BUCKET}/shared"}, events=("NEW", "CHANGED")))
    sagemaker.put("shared/keep", "k")
    sagemaker.run(
        "cd $CDKB_ROOT/input/data/dataset; rm keep; echo new > made",
        InputDataConfig=[lustre_channel("/abcdef/data", "rw")],
    )
    # DELETED is not in the policy, so the deleted file stays in S3.
    assert sagemaker.keys("shared/") == ["shared/keep", "shared/made"]


def test_empty_lustre_path_fails_the_job_and_is_named(sagemaker: Sagemaker, use_fsx: Any) -> None:
    use_fsx(FakeFsx({"/data": f"s3://{BUCKET}/datasets/"}))
    job = sagemaker.run("true", InputDataConfig=[lustre_channel("/abcdef/data/missing")])
    assert job["FailureReason"].startswith("ClientError: ")
    assert "/abcdef/data/missing" in job["FailureReason"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/abcdef/data", {"": "s3://b/all/"}),
        ("/abcdef/data/tokens/x/", {"": "s3://b/all/tokens/x/"}),
        ("/abcdef/data/special/y", {"": "s3://b/special/y/"}),
        ("/abcdef", {"data": "s3://b/all/", "data/special": "s3://b/special/"}),
    ],
)
def test_directory_resolves_through_the_nearest_association(
    path: str, expected: dict[str, str]
) -> None:
    fsx = FakeFsx({"/data": "s3://b/all/", "/data/special/": "s3://b/special"})
    folders = resolve_directory(fsx, source(path))
    assert {folder.below: str(folder.prefix) for folder in folders} == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/wrong/data", "begins with its mount name, /abcdef/"),
        ("/abcdef/elsewhere", "no data repository association covers /elsewhere"),
    ],
)
def test_directory_that_is_not_there(path: str, message: str) -> None:
    with pytest.raises(JobFailedError, match=message) as caught:
        resolve_directory(FakeFsx({"/data": "s3://b/all/"}), source(path))
    assert path in str(caught.value)


class RecordingS3:
    """Takes uploads and notes what lay beside the file meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys: list[str] = []
        self.beside: list[list[str]] = []

    def upload_file(self, path: str, bucket: str, key: str, **rest: Any) -> None:
        self.keys.append(key)
        self.beside.append(sorted(p.name for p in self.folder.iterdir()))


def test_markers_lie_beside_a_checkpoint_and_never_reach_s3(tmp_path: Path) -> None:
    s3 = RecordingS3(tmp_path)
    prefix = S3Uri(bucket=BUCKET, key="run/checkpoints/")
    mirror = Mirror(
        s3=s3, folder=tmp_path, prefix=prefix, propagates_deletions=False, has_markers=True
    )
    (tmp_path / "a.distcp").write_text("1")
    mirror.push()
    assert s3.beside == [["a.distcp", "a.distcp.sagemaker-uploading"]]
    mirror.push()
    assert s3.keys == ["run/checkpoints/a.distcp"]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["a.distcp", "a.distcp.sagemaker-uploaded"]
    (tmp_path / "a.distcp").unlink()
    mirror.push()
    assert list(tmp_path.iterdir()) == []


def test_object_cannot_leave_its_channel(tmp_path: Path) -> None:
    file = S3File(source=S3Uri(bucket="b", key="a/../../x"), path="../../x", size=1)
    with pytest.raises(JobFailedError, match="outside its channel"):
        download(None, file, tmp_path / "channel")
