"""The controller's code: the same bytes from the same sources, and alone in its own folder."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from aws_cdk import App, Environment, Stack

from cdk_blackwell import Foundation, SmallModelJob
from cdk_blackwell.compliance.service_model import SERVICE_MODEL
from cdk_blackwell.lifecycle import asset
from cdk_blackwell.lifecycle.asset import AWS_DATA_FOLDER, stage_controller
from tests.jobs.examples import REGION, SMALL, ZONE


def content(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stage_controller(tmp_path_factory.mktemp("asset"))


def test_staging_twice_gives_the_same_files_and_name(staged: Path, tmp_path: Path) -> None:
    again = stage_controller(tmp_path / "again")
    assert content(again) == content(staged)
    assert again.name == staged.name


def test_another_code_has_another_name(
    staged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = asset.controller_files()
    changed = tmp_path / "changed.py"
    changed.write_bytes(files[0][1].read_bytes() + b"# changed")
    monkeypatch.setattr(asset, "controller_files", lambda: [(files[0][0], changed), *files[1:]])
    assert stage_controller(tmp_path).name != staged.name


def test_what_was_left_half_done_is_not_taken(
    staged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, target: Path) -> None:
        raise OSError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(asset, "_copy", fail)
        with pytest.raises(OSError, match="no room"):
            stage_controller(tmp_path)
    assert content(stage_controller(tmp_path)) == content(staged)


def test_the_jobs_of_an_app_share_it(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Stack", env=Environment(region=REGION))
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    for name in ("One", "Two"):
        SmallModelJob(stack, name, foundation=foundation, **SMALL)
    assert len(list((tmp_path / "staging").glob("controller-*"))) == 1
    assert len(list((tmp_path / "staging").glob("bundle-*"))) == 1


def test_it_carries_sagemakers_model_and_no_byte_code(staged: Path) -> None:
    files = content(staged)
    assert f"{AWS_DATA_FOLDER}/{SERVICE_MODEL}" in files
    assert not [name for name in files if "__pycache__" in name or name.endswith(".pyc")]
    assert not [name for name in files if name.startswith("cdk_blackwell/infrastructure")]


def test_the_handler_imports_with_only_its_folder_and_boto3(staged: Path, tmp_path: Path) -> None:
    """Lambda's own conditions: no aws_cdk, no torch, not this repository."""
    site = Path(boto3.__file__).parent.parent
    libraries = tmp_path / "runtime"
    libraries.mkdir()
    for name in ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six.py"):
        (libraries / name).symlink_to(site / name)
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; "
        "from cdk_blackwell.lifecycle.handler.main import handler; import cdk_blackwell; "
        "print(cdk_blackwell.__file__, callable(handler))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code, str(staged), str(libraries)],
        capture_output=True,
        text=True,
        check=False,
        env={
            "AWS_DATA_PATH": str(staged / AWS_DATA_FOLDER),
            "AWS_REGION": "us-west-2",
            "CDKB_TABLE": "table",
            "CDKB_TOPIC": "arn:aws:sns:us-west-2:123456789012:topic",
        },
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(staged / "cdk_blackwell/__init__.py"), "True"]
