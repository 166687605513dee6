"""``checkpoints export`` gives what the run itself exported, from S3 and on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.checkpoints.test_checkpoints import WHERE
from tests.cli.deployment import Deployment
from tests.distributed.forked import train_ranks
from tests.lifecycle.fakes import CHECKPOINTS, DATASET
from tests.training_scripts.tiny import tiny_spec, write_container

SPEC = tiny_spec(steps=2, checkpoint={"interval_seconds": 1e-6, "export": True})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_container(tmp_path_factory.mktemp("run"), SPEC)
    train_ranks(1, SPEC, root)
    return root


def upload(deployment: Deployment, folder: Path, bucket: str, prefix: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder).as_posix()}"
            deployment.world.s3.upload_file(str(path), bucket, key)


@pytest.mark.slow
def test_an_export_from_s3_equals_the_runs_own(
    finished: Path, deployment: Deployment, tmp_path: Path
) -> None:
    deployment.world.ask("start", "a")
    upload(deployment, finished / "checkpoints", CHECKPOINTS, WHERE.key("checkpoints"))
    upload(deployment, finished / "input/data/config", CHECKPOINTS, WHERE.prefix)
    upload(deployment, finished / "input/data/dataset", DATASET, "tokens")
    done = deployment.json("checkpoints", "export", "a", "--output", str(tmp_path / "model"))
    assert done["step"] == 2
    written = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    own = {path.name: path.read_bytes() for path in (finished / "model").iterdir()}
    assert written == own
    assert "model.safetensors" in own
