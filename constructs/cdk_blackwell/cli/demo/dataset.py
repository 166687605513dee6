"""Real text for the demo: this Python's own standard library, tokenised into shards."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from cdk_blackwell.bundle import bundle_source
from cdk_blackwell.cli.demo import settings
from cdk_blackwell.cli.demo.processes import end_tree
from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.local.aws import LocalAws
from cdk_blackwell.planning.contracts import DATASET_MANIFEST_FILE


class Preparation:
    """``prepare_data.py`` in the background, so that the stacks deploy meanwhile."""

    def __init__(self, *, output: Path, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.output = output
        self.log = log
        command = [
            *(sys.executable, str(bundle_source() / "prepare_data.py")),
            *("--input", sysconfig.get_path("stdlib"), "--include", "*.py"),
            *("--output", str(output)),
            *("--train-tokenizer", "--vocab-size", str(settings.VOCABULARY)),
            *("--max-tokens", str(settings.MAXIMUM_TOKENS), "--workers", "1"),
        ]
        with log.open("w") as sink:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
            )

    def wait(self) -> dict[str, Any]:
        """Wait for the shards; returns the manifest."""
        status = self.process.wait()
        if status != 0:
            lines = self.log.read_text().strip().splitlines()
            raise CommandError(
                f"the demo's dataset could not be prepared: {lines[-1] if lines else status} "
                f"(whole output: {self.log})"
            )
        manifest: dict[str, Any] = json.loads((self.output / DATASET_MANIFEST_FILE).read_text())
        return manifest

    def end(self) -> None:
        """Stop it when the demo ends early."""
        if self.process.poll() is None:
            end_tree(self.process.pid)
            self.process.wait()


def token_counts(manifest: dict[str, Any]) -> dict[str, int]:
    """Tokens per split."""
    return {
        split: sum(shard["tokens"] for shard in shards)
        for split, shards in manifest["splits"].items()
    }


def upload(aws: LocalAws, *, folder: Path, bucket: str, prefix: str) -> list[str]:
    """Upload a folder, the manifest last, so that a half-uploaded dataset is never seen."""
    s3 = aws.client("s3")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    files.sort(key=lambda path: path.name == DATASET_MANIFEST_FILE)
    keys = [f"{prefix}/{path.relative_to(folder).as_posix()}" for path in files]
    for path, key in zip(files, keys, strict=True):
        s3.upload_file(str(path), bucket, key)
    return keys
