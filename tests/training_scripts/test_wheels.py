"""Packages that the image lacks: the bundle's hash-pinned wheels, or an index named for them."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

import launch
from trainer.launching import package_index, wheels
from trainer.launching.cluster import LaunchError

SCRIPTS = Path(launch.__file__).parent
LOCKED = ["nvidia-ml-py", "safetensors", "torchao"]


def test_what_the_image_has_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "is_installed", lambda name: True)
    assert wheels.install_missing_wheels(SCRIPTS) == []


def test_a_missing_package_without_wheels_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.lock").write_text((SCRIPTS / "requirements.lock").read_text())
    monkeypatch.setattr(wheels, "is_installed", lambda name: False)
    with pytest.raises(
        LaunchError, match=r"lacks nvidia-ml-py, safetensors, torchao .*cdk-blackwell vendor"
    ):
        wheels.install_missing_wheels(tmp_path)


def test_only_hash_pinned_wheels_of_the_bundle_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.lock").write_text((SCRIPTS / "requirements.lock").read_text())
    (tmp_path / "wheelhouse").mkdir()
    asked: list[list[str]] = []
    wanted: list[str] = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        wanted.extend(Path(command[-1]).read_text().splitlines())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(wheels, "is_installed", lambda name: False)
    monkeypatch.setattr(subprocess, "run", pip)
    assert wheels.install_missing_wheels(tmp_path) == LOCKED
    assert wanted[0].startswith("nvidia-ml-py==13.615.71 --hash=sha256:959bf4ad")
    assert wanted[1].startswith("safetensors==0.8.0 --hash=sha256:fd6f3f93")
    assert wanted[2].startswith("torchao==0.18.0 --hash=sha256:6540b148")
    assert {"--no-index", "--require-hashes", "--no-deps"} <= set(asked[0])


def test_only_what_the_image_lacks_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.lock").write_text((SCRIPTS / "requirements.lock").read_text())
    (tmp_path / "wheelhouse").mkdir()

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        (wanted,) = Path(command[-1]).read_text().splitlines()
        assert wanted.startswith("torchao==")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(wheels, "is_installed", lambda name: name != "torchao")
    monkeypatch.setattr(subprocess, "run", pip)
    assert wheels.install_missing_wheels(tmp_path) == ["torchao"]


def test_a_wheel_for_another_platform_is_never_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip itself refuses it, by the tags in the wheel's name."""
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    wheel = folder / "cdkb_elsewhere-1.0-cp312-cp312-win32.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("cdkb_elsewhere-1.0.dist-info/METADATA", "Name: cdkb-elsewhere\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock = f"cdkb-elsewhere==1.0 --hash=sha256:{digest}\n"
    (tmp_path / "requirements.lock").write_text(lock)
    with pytest.raises(LaunchError, match="for cdkb-elsewhere cannot be installed"):
        wheels.install_missing_wheels(tmp_path)
    assert not wheels.is_installed("cdkb-elsewhere")


def test_an_index_takes_the_place_of_the_wheels_and_the_hashes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.lock").write_text((SCRIPTS / "requirements.lock").read_text())
    asked: list[tuple[list[str], dict[str, str]]] = []

    def pip(
        command: list[str], *, env: dict[str, str], **_: object
    ) -> subprocess.CompletedProcess[str]:
        asked.append((command, env))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(wheels, "is_installed", lambda name: False)
    monkeypatch.setattr(subprocess, "run", pip)
    assert wheels.install_missing_wheels(tmp_path, index="default") == LOCKED
    ((command, _),) = asked
    assert {"--require-hashes", "--no-deps"} <= set(command)
    assert not {"--no-index", "--find-links"} & set(command)


class CodeArtifact:
    """Answers as the service does."""

    def get_authorization_token(self, **asked: str) -> dict[str, str]:
        assert asked == {"domain": "team", "domainOwner": "123456789012"}
        return {"authorizationToken": "secret"}

    def get_repository_endpoint(self, **asked: str) -> dict[str, str]:
        assert asked["repository"] == "python"
        return {"repositoryEndpoint": "https://team.example/python/"}


def test_the_token_of_an_index_never_stands_on_a_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("boto3.client", lambda name: CodeArtifact())
    found = package_index.pip_environment("codeartifact:team:123456789012:python")
    assert found == {"PIP_INDEX_URL": "https://aws:secret@team.example/python/simple/"}


def test_an_unknown_index_is_named() -> None:
    with pytest.raises(LaunchError, match=r"'conda' is unknown: default or codeartifact:"):
        package_index.pip_environment("conda")
