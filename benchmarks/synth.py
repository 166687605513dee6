"""How long ``cdk synth`` of all stacks takes, beside an empty app as ``cdk init`` makes it.

``python -m benchmarks.synth`` from the repository's root; ``cdk`` must be on the path. Aim: at most
1.25 times the empty app for the whole process, with the CDK's validator and cdk-nag off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from aws_cdk import App, Stack

from benchmarks.measure import Timing, arguments, machine, report, timed
from cdk_blackwell import CheckpointStore

ROOT = Path(__file__).parents[1]
EMPTY = """
import aws_cdk as cdk
from constructs import Construct

class Empty(cdk.Stack):
    def __init__(self, scope: Construct, construct_id: str, **kwargs) -> None:
        super().__init__(scope, construct_id, **kwargs)

app = cdk.App()
Empty(app, "Empty")
app.synth()
"""
ALL = """
from aws_cdk import App
from app import build
build(App()).synth()
"""
WITH_NAG = """
from aws_cdk import App, Validations
from app import build
from cdk_blackwell.compliance.nag import acknowledge_findings, packs
app = build(App())
acknowledge_findings(app)
Validations.of(app).add_plugins(*packs(app))
app.synth()
"""
CASES = {
    "empty app": (EMPTY, False),
    "all stacks": (ALL, False),
    "all stacks, CDK's validator": (ALL, True),
    "all stacks, four cdk-nag packs": (WITH_NAG, False),
}
"""Name to program, and whether the CDK's own validator runs."""


def synthesise(program: Path, output: Path, *, validator: bool) -> None:
    """One whole ``cdk synth`` process; RuntimeError with its last words if it fails."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    context |= {"packages_in_image": "true"}
    (program.parent / "cdk.json").write_text(
        json.dumps({"versionReporting": False, "context": context})
    )
    done = subprocess.run(
        ["cdk", "synth", "--quiet", "--app", f"{sys.executable} {program}", "--output", output],
        cwd=program.parent,
        env=os.environ
        | {
            "CDK_VALIDATION": str(validator).lower(),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'constructs'}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"cdk synth failed: {done.stderr[-2000:]}")


def main() -> None:
    """Measure, print, and write with ``--json``."""
    parser = arguments(__doc__.partition("\n")[0], runs=5)
    parser.add_argument("--tests", action="store_true", help="time the fast test suite, too")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (source, validator) in CASES.items():
            program = Path(folder) / "program.py"
            program.write_text(source)
            work = partial(synthesise, program, Path(folder) / "out", validator=validator)
            timing: Timing = timed(work, runs=options.runs)
            figures[name] = timing
            beside = timing.fastest_ms - figures["empty app"].fastest_ms
            ratio = timing.fastest_ms / figures["empty app"].fastest_ms
            print(f"{name:32} {timing}; {beside:+8.0f} ms, {ratio:.2f} x empty", flush=True)
    stack, numbers = Stack(App(), "Stack"), count()
    figures["one CheckpointStore"] = timed(
        lambda: CheckpointStore(stack, f"Store{next(numbers)}"), runs=10 * options.runs
    )
    print(f"{'one CheckpointStore':32} {figures['one CheckpointStore']}")
    if options.tests:
        suite = [sys.executable, "-m", "pytest", "-q", "-m", "not slow"]
        figures["test suite"] = timed(
            lambda: subprocess.run(suite, cwd=ROOT, check=True, stdout=subprocess.DEVNULL), runs=1
        )
        print(f"{'test suite':32} {figures['test suite']}")
    where = machine("aws-cdk-lib", "cdk-blackwell", "cdk-nag")
    report("synth", figures, where, file=options.json)


if __name__ == "__main__":
    main()
