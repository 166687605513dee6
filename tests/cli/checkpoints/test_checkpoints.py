"""``checkpoints``: what is complete is listed as such, fetched whole, and nothing else is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cdk_blackwell.cli.errors import CheckFailedError, CommandError
from cdk_blackwell.planning.contracts import COMPLETE_FILE, RunLocation, step_folder
from cdk_blackwell.planning.records import CompleteMarker, FileRecord
from tests.cli.deployment import Deployment
from tests.lifecycle.fakes import CHECKPOINTS, real_client

WHERE = RunLocation(bucket=CHECKPOINTS, job="pretrain", run_id="a")


def save(
    step: int, *, missing: str = "", cut: str = "", broken: str = "", marker: bool = True
) -> None:
    """A checkpoint of two files in S3, and what went wrong with it."""
    files = {"__0_0.distcp": b"a" * 100, ".metadata": b"b" * 10}
    root = WHERE.key(f"checkpoints/{step_folder(step)}")
    s3 = real_client("s3")
    for name, body in files.items():
        if name == missing:
            continue
        body = body[:-1] if name == cut else b"x" * len(body) if name == broken else body
        s3.put_object(Bucket=CHECKPOINTS, Key=f"{root}/{name}", Body=body)
    if marker:
        text = CompleteMarker(
            run_id="a",
            step=step,
            tokens=step * 4096,
            ranks=1,
            recipe_sha256="0" * 64,
            files={
                name: FileRecord(bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
                for name, body in files.items()
            },
        ).to_json()
        s3.put_object(Bucket=CHECKPOINTS, Key=f"{root}/{COMPLETE_FILE}", Body=text.encode())


@pytest.fixture
def saved(deployment: Deployment) -> Deployment:
    deployment.world.ask("start", "a")
    save(100)
    save(200)
    save(300, missing=".metadata")
    save(400, cut="__0_0.distcp")
    save(500, marker=False)
    return deployment


def test_only_what_its_marker_lists_in_full_is_complete(saved: Deployment) -> None:
    rows = saved.json("checkpoints", "list")["checkpoints"]
    assert [(row["step"], row["complete"]) for row in rows] == [
        (100, True),
        (200, True),
        (300, False),
        (400, False),
        (500, False),
    ]
    assert rows[0]["tokens"] == 409_600
    assert rows[2]["problem"] == "1 of 2 files are not there, first .metadata"
    assert rows[3]["problem"] == "__0_0.distcp has 99 bytes, 100 are expected"
    assert rows[4]["bytes"] == 110
    assert max(map(len, saved.run("checkpoints", "list").stdout.splitlines())) <= 80


def test_the_newest_complete_one_is_fetched_with_its_marker_last(
    saved: Deployment, tmp_path: Path
) -> None:
    done = saved.json("checkpoints", "fetch", "--output", str(tmp_path))
    folder = tmp_path / step_folder(200)
    assert (done["step"], done["folder"]) == (200, str(folder))
    assert (folder / "__0_0.distcp").read_bytes() == b"a" * 100
    assert CompleteMarker.from_json((folder / COMPLETE_FILE).read_bytes()).step == 200


def test_a_damaged_file_leaves_no_marker(saved: Deployment, tmp_path: Path) -> None:
    save(600, broken=".metadata")
    done = saved.run("checkpoints", "fetch", "--output", str(tmp_path))
    assert isinstance(done.exception, CheckFailedError)
    assert not (tmp_path / step_folder(600) / COMPLETE_FILE).exists()


@pytest.mark.parametrize(
    ("step", "message"),
    [("300", "is not complete: 1 of 2 files"), ("7", "no checkpoint of step 7")],
)
def test_what_cannot_be_fetched_names_what_can(
    saved: Deployment, tmp_path: Path, step: str, message: str
) -> None:
    error = saved.run("checkpoints", "fetch", "--step", step, "--output", str(tmp_path)).exception
    assert isinstance(error, CommandError)
    assert message in str(error)
    assert "complete are 100, 200" in str(error)


def test_an_export_overwrites_nothing(saved: Deployment, tmp_path: Path) -> None:
    error = saved.run("checkpoints", "export", "--output", str(tmp_path)).exception
    assert isinstance(error, CommandError)
    assert "give a folder that does not" in str(error)
