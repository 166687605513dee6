"""The built wheel, in a clean environment, outside the repository: what a user really installs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parent.parent

APP = """
import aws_cdk as cdk
from cdk_blackwell import Foundation, ModelShape, SmallModelJob


class Pretrain(cdk.Stack):
    def __init__(self, scope, id, **kwargs):
        super().__init__(scope, id, **kwargs)
        foundation = Foundation(self, "Foundation", availability_zone="us-west-2a")
        SmallModelJob(
            self,
            "Pretrain",
            model=ModelShape.preset("llama-3.2-1b"),
            foundation=foundation,
            dataset_prefix="tokens",
            sequence_length=8192,
            global_batch_tokens=1_048_576,
            train_tokens=10**10,
            waive_cost_ceiling=True,
            packages_in_image=True,
        )


app = cdk.App()
Pretrain(app, "Elsewhere")
app.synth()
"""

PLATFORM = """
from dataclasses import replace

from cdk_blackwell import MidModelJob


class TeamJob(MidModelJob):
    \"\"\"A job with the organisation's own defaults.\"\"\"

    def recipe(self, overrides):
        return replace(super().recipe(overrides), seed=42)

    def container_environment(self):
        return {**super().container_environment(), "TEAM": "platform"}
"""
PLATFORM_APP = """
import aws_cdk as cdk
from cdk_blackwell import Foundation, ModelShape
from platform_team.jobs import TeamJob

app = cdk.App()
base = cdk.Stack(app, "Base")
foundation = Foundation(base, "Foundation", availability_zone="us-west-2a")
TeamJob(
    cdk.Stack(app, "Training"),
    "Pretrain",
    model=ModelShape.preset("llama-3.1-8b"),
    foundation=foundation,
    dataset_prefix="tokens",
    sequence_length=8192,
    instance_count=2,
    waive_cost_ceiling=True,
    packages_in_image=True,
)
app.synth()
"""


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, folder=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(
        *(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "requirements.txt"),
        wheel,
        folder=folder,
    )
    return python


def test_the_wheel_holds_the_bundle_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "cdk_blackwell/_bundle/launch.py" in names
    assert "cdk_blackwell/_bundle/trainer/run.py" in names
    assert "cdk_blackwell/_bundle/requirements.lock" in names
    assert "cdk_blackwell/py.typed" in names
    assert "cdk_blackwell/cli/init/template/test_app.py.txt" in names
    of_users = ("cdk_blackwell/testing/", "cdk_blackwell/cli/init/template/")
    ours = [name for name in names if not name.startswith(of_users)]
    assert not [name for name in ours if "test" in name or "__pycache__" in name]


def test_an_app_outside_the_repository_synthesises_with_the_wheels_bundle(
    clean_python: Path, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    run(
        clean_python,
        "app.py",
        folder=tmp_path,
        CDK_OUTDIR=str(tmp_path / "cdk.out"),
        PYTHONPATH="",
    )
    template = json.loads((tmp_path / "cdk.out" / "Elsewhere.template.json").read_text())
    kinds = [resource["Type"] for resource in template["Resources"].values()]
    assert kinds.count("Custom::CdkBlackwellRun") == 1
    (bundle,) = (tmp_path / "cdk.out").glob("asset.*.gz")
    with tarfile.open(bundle) as archive:
        names = archive.getnames()
    assert "launch.py" in names
    assert "cdk_blackwell/planning/run_spec.py" in names


def test_a_subclass_in_another_package_runs_in_a_stack_of_its_own(
    clean_python: Path, tmp_path: Path
) -> None:
    package = tmp_path / "platform_team"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(PLATFORM)
    (tmp_path / "app.py").write_text(PLATFORM_APP)
    run(
        clean_python,
        "app.py",
        folder=tmp_path,
        CDK_OUTDIR=str(tmp_path / "cdk.out"),
        PYTHONPATH="",
    )
    template = json.loads((tmp_path / "cdk.out" / "Training.template.json").read_text())
    (definition,) = (
        json.dumps(resource["Properties"]["Definition"])
        for resource in template["Resources"].values()
        if resource["Type"] == "Custom::CdkBlackwellRun"
    )
    plain = definition.replace("\\", "")
    for part in ('"TEAM":"platform"', '"seed":42', "/opt/ml/input/data/checkpoints/"):
        assert part in plain
