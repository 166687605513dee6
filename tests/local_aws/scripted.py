"""The scripted application, deployed into an embedded AWS by the real command lines."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.local.aws import LocalAws
from cdk_blackwell.planning.contracts import DATASET_MANIFEST_FILE, StackOutput

ROOT = Path(__file__).parents[2]
APP = Path(__file__).parent / "scripted_app" / "app.py"
CDK = ROOT / "node_modules" / ".bin" / "cdk"
NEEDS_CDK = pytest.mark.skipif(not CDK.exists(), reason="the CDK command line is not installed")
CLI = Path(sys.executable).parent / "cdk-blackwell"
LIMIT_SECONDS = 90.0
"""Only how long a broken test may hang."""


class Scripted:
    """Both command lines bound to one embedded AWS."""

    def __init__(self, aws: LocalAws, folder: Path, *, app: Path = APP) -> None:
        self.aws = aws
        self._app = app
        self._folder = folder
        self.environment = {
            **aws.environment(),
            "CDK_VALIDATION": "false",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
            "PYTHONPATH": str(ROOT),
        }
        binaries = Path(sys.executable).parent
        if shutil.which("node", path=str(binaries)):
            self.environment["JSII_NODE"] = str(binaries / "node")
            self.environment["PATH"] = f"{binaries}{os.pathsep}{self.environment['PATH']}"

    def cdk(self, *words: str, **edits: str) -> str:
        """``cdk`` that must end well; ``edits`` are what the app is told."""
        status, output = self._run([str(CDK), *words, "--ci", "--no-notices", "--no-color"], edits)
        assert status == 0, output
        return output

    def deploy(self, *stacks: str, **edits: str) -> str:
        """``cdk deploy``."""
        assembly = self.synth(**edits)
        words = (*stacks, "--exclusively", "--require-approval=never", "--app", str(assembly))
        return self.cdk("deploy", *words)

    def deploy_fails(self, *stacks: str, **edits: str) -> str:
        """``cdk deploy`` that must fail; returns what it said."""
        assembly = self.synth(**edits)
        words = [*stacks, "--exclusively", "--require-approval=never", "--app", str(assembly)]
        status, output = self._run([str(CDK), "deploy", *words, "--ci", "--no-notices"], {})
        assert status != 0, output
        return output

    def destroy(self, *stacks: str) -> str:
        """``cdk destroy`` of stacks as they were last synthesised."""
        words = (*stacks, "--exclusively", "--force", "--app", str(self._assemblies()[-1]))
        return self.cdk("destroy", *words)

    def synth(self, **edits: str) -> Path:
        """Python alone: the command line would start the app the same way."""
        assembly = self._folder / f"assembly-{len(self._assemblies())}"
        status, output = self._run(
            [sys.executable, str(self._app)], {**edits, "CDK_OUTDIR": str(assembly)}
        )
        assert status == 0, output
        return assembly

    def on_a_terminal(self, *words: str, interrupt_after: bytes) -> tuple[int, str]:
        """``cdk-blackwell`` on a pseudo-terminal, interrupted once it showed this; status, screen.

        Ctrl-C is what a terminal makes of a person's key, so it is sent as that key.
        """
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self._folder)
            os.execve(CLI, [str(CLI), *words], {**self.environment, "TERM": "xterm-256color"})
        shown, pressed = b"", False
        limit = time.monotonic() + LIMIT_SECONDS
        with contextlib.suppress(OSError), os.fdopen(terminal, "r+b", buffering=0) as screen:
            # Linux ends a terminal whose program is gone with an error.
            while time.monotonic() < limit and (some := screen.read(4096)):
                shown += some
                if interrupt_after in shown and not pressed:
                    pressed = True
                    screen.write(b"\x03")
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown.decode()

    def cli(self, *words: str, status: int = 0, stdout: bool | None = None) -> str:
        """``cdk-blackwell`` must end with ``status``; returns stdout, or else stderr.

        ``stdout`` asks for one of them, whatever the status.
        """
        done = subprocess.run(
            [str(CLI), *words],
            env=self.environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if (stdout is None and not status) or stdout else done.stderr

    def json(self, *words: str) -> Any:
        """``cdk-blackwell ... --json``."""
        return json.loads(self.cli(*words, "--json"))

    def set_up(self) -> None:
        """Bootstrap, foundation, and a manifest, without which no launch is accepted."""
        self.cdk("bootstrap", f"aws://{self.aws.account}/{self.aws.region}")
        self.deploy("FoundationStack")
        bucket = self.output("FoundationStack", "DatasetBucket")
        self.aws.client("s3").put_object(
            Bucket=bucket, Key=f"tokens/{DATASET_MANIFEST_FILE}", Body=b"{}"
        )

    def output(self, stack: str, key: str) -> str:
        """One output of a stack."""
        found = self.aws.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
        return str({one["OutputKey"]: one["OutputValue"] for one in found["Outputs"]}[key])

    def job_output(self, stack: str) -> StackOutput:
        """What the stack's job tells the command line."""
        found = self.aws.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
        values = [one["OutputValue"] for one in found["Outputs"]]
        return StackOutput.from_json(next(value for value in values if value.startswith("{")))

    def training_jobs(self) -> dict[str, str]:
        """Status of every training job by name."""
        pages = self.aws.client("sagemaker").get_paginator("list_training_jobs").paginate()
        return {
            job["TrainingJobName"]: job["TrainingJobStatus"]
            for page in pages
            for job in page["TrainingJobSummaries"]
        }

    def status(self, run_id: str) -> str:
        """SageMaker's status of a run's newest attempt."""
        return max(
            (name, status) for name, status in self.training_jobs().items() if f"-{run_id}-" in name
        )[1]

    def phase(self, run_id: str) -> str:
        """SageMaker's secondary status of a run's newest attempt."""
        name = max(name for name in self.training_jobs() if f"-{run_id}-" in name)
        found = self.aws.client("sagemaker").describe_training_job(TrainingJobName=name)
        return str(found["SecondaryStatus"])

    def _assemblies(self) -> list[Path]:
        return sorted(self._folder.glob("assembly-*"), key=lambda path: int(path.name[9:]))

    def _run(self, command: list[str], edits: dict[str, str]) -> tuple[int, str]:
        done = subprocess.run(
            command,
            env={**self.environment, **edits},
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


def eventually(holds: Callable[[], Any]) -> Any:
    """Wait until ``holds()`` is true; returns it."""
    limit = time.monotonic() + LIMIT_SECONDS
    while not (value := holds()):
        assert time.monotonic() < limit, "it did not come to pass"
        time.sleep(0.2)
    return value
