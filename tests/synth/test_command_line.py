"""The real CDK command line on this repository, as a user runs it: list, synth, deploy, destroy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cdk_blackwell.local.aws import LocalAws
from cdk_blackwell.planning.contracts import STACK_OUTPUT_PREFIX, StackOutput
from tests.local_aws.scripted import CDK, NEEDS_CDK, ROOT

STACKS = ("FoundationStack", "SmallModelStack", "MidModelStack", "LargeShardedStack")
CONTEXT = {"packages_in_image": "true", "availability_zone": "us-west-2b", "region": "us-west-2"}

pytestmark = [pytest.mark.slow, NEEDS_CDK]


def cdk(*words: str, out: Path, environment: Mapping[str, str]) -> str:
    """Run ``cdk`` from the repository's root; returns what it printed."""
    given = {
        **environment,
        "CDK_VALIDATION": "false",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
    }
    node = shutil.which("node", path=str(Path(sys.executable).parent))
    if node:
        given.update(JSII_NODE=node, PATH=f"{Path(node).parent}:{given['PATH']}")
    context = [word for pair in CONTEXT.items() for word in ("-c", "=".join(pair))]
    app = ("--app", f"{sys.executable} app.py", "--output", str(out))
    done = subprocess.run(
        [str(CDK), *words, *context, *app, "--ci", "--no-notices", "--no-color"],
        cwd=ROOT,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_ls_and_synth_need_no_account(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_"))}
    listed = cdk("ls", out=tmp_path / "ls", environment=environment)
    assert set(STACKS) <= {line.strip() for line in listed.splitlines()}
    cdk("synth", "--quiet", out=tmp_path / "out", environment=environment)
    for stack in STACKS:
        assert (tmp_path / "out" / f"{stack}.template.json").is_file()


def test_all_stacks_are_deployed_and_destroyed(tmp_path: Path) -> None:
    with LocalAws(state_dir=tmp_path / "aws") as aws:
        environment = aws.environment()
        cdk("bootstrap", out=tmp_path / "boot", environment=environment)
        outputs = tmp_path / "outputs.json"
        deploy = ("deploy", "--all", "--require-approval=never", "--outputs-file", str(outputs))
        cdk(*deploy, out=tmp_path / "out", environment=environment)
        boards = aws.client("cloudwatch").list_dashboards()["DashboardEntries"]
        for stack, values in json.loads(outputs.read_text()).items():
            if stack in STACKS[1:]:
                name = next(iter(key for key in values if key.startswith(STACK_OUTPUT_PREFIX)))
                output = StackOutput.from_json(values[name])
                assert output.dashboard in [board["DashboardName"] for board in boards]
        cdk("destroy", "--all", "--force", out=tmp_path / "end", environment=environment)
        left = aws.client("cloudformation").describe_stacks()["Stacks"]
        assert not set(STACKS) & {stack["StackName"] for stack in left}
        # What holds data outlives its stack.
        assert aws.client("s3").list_buckets()["Buckets"]
        assert aws.client("fsx").describe_file_systems()["FileSystems"]
