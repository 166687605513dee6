"""The real CDK command line against the embedded AWS."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdk_blackwell.cli.demo.processes import run_logged
from cdk_blackwell.cli.demo.screen import Phase
from cdk_blackwell.cli.errors import AwsRefusedError, CommandError
from cdk_blackwell.local.aws import LocalAws

_EVENT = re.compile(r"\|\s*(\d+/\d+)\s*\|[^|]*\|\s*(\w+)\s*\|\s*([\w:]+)\s*\|\s*(\S+)")
_FAILURE = re.compile(r"(_FAILED|❌|Error:|cdk-blackwell:|app\.py:)")


@dataclass(frozen=True, kw_only=True)
class Cdk:
    """The command line, bound to one application, one assembly and one embedded AWS."""

    aws: LocalAws
    application: Path
    """Folder of app.py and cdk.json."""
    assembly: Path
    logs: Path

    @property
    def environment(self) -> dict[str, str]:
        """The embedded AWS's environment; the built-in validator's 5 s belong in the tests."""
        return {
            **self.aws.environment(),
            "CDK_VALIDATION": "false",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
        }

    def bootstrap(self, account: str, region: str, phase: Phase) -> None:
        """``cdk bootstrap``; the app of cdk.json would be synthesised beside ours for nothing."""
        self._run("bootstrap", [f"aws://{account}/{region}"], phase, app=self.assembly)

    def synth(self, context: Mapping[str, str], phase: Phase) -> None:
        """``cdk synth`` of all stacks into the assembly, once; later commands use it as it is."""
        words = [word for key, value in context.items() for word in ("-c", f"{key}={value}")]
        self._run("synth", ["--quiet", "--output", str(self.assembly), *words], phase, app=None)

    def deploy(self, stack: str, phase: Phase) -> dict[str, str]:
        """``cdk deploy`` of one stack; returns its outputs."""
        outputs = self.logs / f"outputs-{stack}.json"
        self._run(
            "deploy",
            [
                *(stack, "--exclusively", "--require-approval=never", "--progress=events"),
                *("--outputs-file", str(outputs)),
            ],
            phase,
            app=self.assembly,
        )
        values: dict[str, dict[str, str]] = json.loads(outputs.read_text())
        return values.get(stack, {})

    def destroy(self, phase: Phase) -> None:
        """``cdk destroy`` of all stacks."""
        self._run("destroy", ["--all", "--force"], phase, app=self.assembly)

    def resources(self, stack: str) -> list[dict[str, Any]]:
        """The stack's resources as CloudFormation lists them."""
        pages = self.aws.client("cloudformation").get_paginator("list_stack_resources")
        return [
            dict(resource)
            for page in pages.paginate(StackName=stack)
            for resource in page["StackResourceSummaries"]
        ]

    def _run(self, verb: str, words: list[str], phase: Phase, *, app: Path | None) -> None:
        command = shutil.which("cdk", path=self.environment.get("PATH"))
        if command is None:
            raise CommandError("the CDK command line is not installed: run 'make setup'")
        name = "-".join([verb, *(word for word in words[:1] if word.isalnum())])
        log = self.logs / f"cdk-{name}.log"
        failures: list[str] = []

        def show(line: str) -> None:
            event = _EVENT.search(line)
            if event:
                phase.detail(f"{event[1]} {event[3].removeprefix('AWS::')} {event[2].lower()}")
            if _FAILURE.search(line):
                failures.append(line.strip())

        arguments = [command, verb, *words, "--ci", "--no-notices", "--no-color"]
        if app is not None:
            arguments += ["--app", str(app)]
        status = run_logged(
            arguments,
            environment=self.environment,
            folder=self.application,
            log=log,
            on_line=show,
        )
        if status != 0:
            reason = failures[0] if failures else f"it ended with status {status}"
            raise AwsRefusedError(f"cdk {verb} failed: {reason} (whole output: {log})")
