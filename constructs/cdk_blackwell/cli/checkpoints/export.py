"""A checkpoint to Hugging Face safetensors, on this machine's CPU, by the bundle's own script."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from cdk_blackwell.bundle import bundle_source
from cdk_blackwell.cli.checkpoints.found import Checkpoint
from cdk_blackwell.cli.checkpoints.transfer import fetch_checkpoint
from cdk_blackwell.cli.errors import CheckFailedError, CommandError
from cdk_blackwell.cli.trial.reports import location
from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.planning.contracts import RUN_FILE

EXPORTER = "export_checkpoint.py"


def export_checkpoint(
    aws: Aws,
    job: DeployedJob,
    run_id: str,
    definition: JobDefinition,
    checkpoint: Checkpoint,
    output: Path,
    *,
    dtype: str | None,
    say: Callable[[str], None],
) -> None:
    """Fetch the run, the checkpoint and the dataset's tokenizer, and export into ``output``.

    The checkpoint needs its own size in the temporary folder (``TMPDIR`` moves it). CommandError
    when ``output`` exists or torch is missing, CheckFailedError when the exporter fails.
    """
    if output.exists():
        raise CommandError(f"--output {output} exists; give a folder that does not")
    if find_spec("torch") is None:
        raise CommandError("an export needs torch: pip install 'cdk-blackwell[train]'")
    with tempfile.TemporaryDirectory(prefix="cdk-blackwell-export-") as scratch:
        root = Path(scratch)
        where = location(job, run_id)
        run = root / RUN_FILE
        aws.client("s3").download_file(where.bucket, where.key(RUN_FILE), str(run))
        dataset = _fetch_dataset_files(aws, definition, root / "dataset")
        fetch_checkpoint(aws, where.bucket, checkpoint, root / "checkpoints", say)
        say("exporting")
        command = [
            *(sys.executable, str(bundle_source() / EXPORTER), "--run", str(run)),
            *("--checkpoints", str(root / "checkpoints"), "--dataset", str(dataset)),
            *("--output", str(output.resolve()), "--step", str(checkpoint.step)),
            *(("--dtype", dtype) if dtype else ()),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=_environment()
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise CheckFailedError(f"the export failed: {said[-1] if said else done.returncode}")


def _environment() -> dict[str, str]:
    # The bundle carries planning; beside the package in a repository, its folder must be named.
    package_root = str(Path(__file__).resolve().parents[3])
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": f"{package_root}{os.pathsep}{path}" if path else package_root,
    }


def _fetch_dataset_files(aws: Aws, definition: JobDefinition, folder: Path) -> Path:
    """Manifest and tokenizer: all of the dataset but its token shards."""
    manifest = definition.dataset_manifest
    prefix = manifest.key.rsplit("/", 1)[0] + "/" if "/" in manifest.key else ""
    folder.mkdir()
    pages = aws.client("s3").get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=manifest.bucket, Prefix=prefix):
        for entry in page.get("Contents", []):
            name = entry["Key"].removeprefix(prefix)
            if name and not name.endswith(("/", ".bin", ".mask")):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                aws.client("s3").download_file(manifest.bucket, entry["Key"], str(path))
    return folder
