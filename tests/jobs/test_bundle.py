"""The training bundle: a comment changes its hash, nothing else does."""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

import pytest

from cdk_blackwell.bundle import bundle_source, locked_wheels, read_lock
from cdk_blackwell.jobs.bundle import bundle_members, resolve_wheels, write_bundle

WHEEL = b"not really a wheel"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Training scripts of one file, with a lock of one wheel."""
    folder = tmp_path / "scripts"
    (folder / "trainer" / "__pycache__").mkdir(parents=True)
    (folder / "launch.py").write_text("print('launch')\n")
    (folder / "trainer" / "loop.py").write_text("steps = 1\n")
    (folder / "trainer" / "__pycache__" / "loop.cpython-311.pyc").write_bytes(b"code")
    digest = hashlib.sha256(WHEEL).hexdigest()
    (folder / "requirements.lock").write_text(
        f"# a comment\nsafetensors==0.8.0 \\\n    --hash=sha256:{digest}\n"
    )
    return folder


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "safetensors-0.8.0-cp312-linux.whl").write_bytes(WHEEL)
    (folder / "other-1.0-py3-none-any.whl").write_bytes(b"something else")
    return folder


def names(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def test_equal_content_gives_equal_bytes(source: Path, tmp_path: Path) -> None:
    first = write_bundle(tmp_path / "a", wheels=(), source=source).read_bytes()
    for file in source.rglob("*"):
        os.utime(file, (1, 1))
    (source / "launch.py").chmod(0o755)
    assert write_bundle(tmp_path / "b", wheels=(), source=source).read_bytes() == first


def test_a_comment_in_a_script_changes_the_bytes(source: Path, tmp_path: Path) -> None:
    first = write_bundle(tmp_path / "a", wheels=(), source=source).read_bytes()
    (source / "launch.py").write_text("print('launch')  # a comment\n")
    assert write_bundle(tmp_path / "b", wheels=(), source=source).read_bytes() != first


def test_it_holds_launcher_trainer_planning_and_only_the_locked_wheel(
    source: Path, wheelhouse: Path, tmp_path: Path
) -> None:
    wheels = resolve_wheels(wheelhouse=str(wheelhouse), packages_in_image=False, source=source)
    found = names(write_bundle(tmp_path / "a", wheels=wheels, source=source))
    assert found == sorted(found)
    assert {"launch.py", "trainer/loop.py", "requirements.lock"} <= set(found)
    assert "cdk_blackwell/planning/run_spec.py" in found
    assert [n for n in found if n.startswith("wheelhouse/")] == [
        "wheelhouse/safetensors-0.8.0-cp312-linux.whl"
    ]
    assert not [n for n in found if "__pycache__" in n]


def test_every_entry_is_a_plain_file_of_nobody(source: Path, tmp_path: Path) -> None:
    with tarfile.open(write_bundle(tmp_path / "a", wheels=(), source=source)) as tar:
        for entry in tar:
            assert (entry.mtime, entry.mode, entry.uid, entry.gid) == (0, 0o644, 0, 0)
            assert entry.isfile()


def test_the_real_bundle_is_complete() -> None:
    found = {name for name, _ in bundle_members(wheels=())}
    scripts = {"train_small.py", "train_mid.py", "train_large_sharded.py", "prepare_data.py"}
    assert {"launch.py", "trainer/__init__.py"} | scripts <= found
    assert (bundle_source() / "launch.py").is_file()
    assert [package.name for package in locked_wheels()] == [
        "nvidia-ml-py",
        "safetensors",
        "torchao",
    ]


def test_a_wheel_of_another_content_does_not_count(source: Path, wheelhouse: Path) -> None:
    (wheelhouse / "safetensors-0.8.0-cp312-linux.whl").write_bytes(b"tampered")
    with pytest.raises(ValueError, match=r"lacks safetensors==0\.8\.0.*cdk-blackwell vendor"):
        resolve_wheels(wheelhouse=str(wheelhouse), packages_in_image=False, source=source)


def test_an_image_that_holds_the_packages_needs_no_wheels(source: Path) -> None:
    assert resolve_wheels(wheelhouse=None, packages_in_image=True, source=source) == ()


def test_a_wheelhouse_and_packages_in_the_image_contradict(source: Path) -> None:
    with pytest.raises(ValueError, match="both given"):
        resolve_wheels(wheelhouse="wheels", packages_in_image=True, source=source)


def test_a_lock_without_hashes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"safetensors==0\.8\.0"):
        read_lock("safetensors==0.8.0\n")
