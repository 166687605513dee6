"""How long ``cdk synth`` of all stacks takes, beside an empty app as ``cdk init`` makes it.

``python -m benchmarks.synth`` from the repository's root; ``cdk`` must be on the path. Aim: at most
1.25 times the empty app for the whole process, with the CDK's validator and cdk-nag off.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from aws_cdk import App, Stack

from benchmarks.measure import Timing, arguments, machine, report, timed
from cdk_blackwell import CheckpointStore

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "node_modules/aws-cdk/lib/init-templates/app/python"
"""What ``cdk init app --language python`` copies, from the command line's own package."""
NAMES = {
    "name.PythonModule": "empty",
    "name.PascalCased": "Empty",
    "stackname": "EmptyStack",
    "python-executable": sys.executable,
}
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
EMPTY_APP = "cdk init's app"
CASES = {
    EMPTY_APP: (None, False),
    "all stacks": (ALL, False),
    "all stacks, CDK's validator": (ALL, True),
    "all stacks, four cdk-nag packs": (WITH_NAG, False),
}
"""Name to program (None: what ``cdk init`` writes), and whether the CDK's own validator runs.

``cdk init``'s app has no resources, and the validator refuses it: it is timed without.
"""


def initialise(folder: Path) -> None:
    """Write the app that ``cdk init`` makes of its template, with nothing left out."""
    if not TEMPLATE.is_dir():
        raise SystemExit(f"{TEMPLATE} is not there: run make setup")
    for source in TEMPLATE.rglob("*"):
        if source.is_file():
            name = _filled(str(source.relative_to(TEMPLATE))).replace(".template", "")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(_filled(source.read_text()))
    settings = json.loads((folder / "cdk.json").read_text())
    settings["context"] = json.loads((ROOT / "cdk.json").read_text())["context"]
    (folder / "cdk.json").write_text(json.dumps(settings | {"versionReporting": False}))


def ours(folder: Path, source: str) -> None:
    """Write an app around ``source`` with the context of the repository's own."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    context |= {"packages_in_image": "true"}
    (folder / "program.py").write_text(source)
    settings = {
        "app": f"{sys.executable} program.py",
        "versionReporting": False,
        "context": context,
    }
    (folder / "cdk.json").write_text(json.dumps(settings))


def _filled(text: str) -> str:
    for name, value in NAMES.items():
        text = text.replace(f"%{name}%", value)
    return text


def synthesise(folder: Path, *, validator: bool) -> None:
    """One whole ``cdk synth`` process; RuntimeError with its last words if it fails."""
    done = subprocess.run(
        ["cdk", "synth", "--quiet", "--output", folder / "cdk.out"],
        cwd=folder,
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


def counted(work: Callable[[], None], cpu: list[float]) -> None:
    """Do ``work`` and add its processes' CPU milliseconds: a busy machine changes them less."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu.append(1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))


def main() -> None:
    """Measure, print, and write with ``--json``."""
    parser = arguments(__doc__.partition("\n")[0], runs=5)
    parser.add_argument("--tests", action="store_true", help="time the fast test suite, too")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as parent:
        for number, (name, (source, validator)) in enumerate(CASES.items()):
            folder = Path(parent) / f"app{number}"
            folder.mkdir()
            initialise(folder) if source is None else ours(folder, source)
            cpu: list[float] = []
            timing: Timing = timed(
                partial(counted, partial(synthesise, folder, validator=validator), cpu),
                runs=options.runs,
            )
            figures[name] = timing
            figures[f"{name}, CPU ms"] = round(min(cpu))
            beside = timing.fastest_ms - figures[EMPTY_APP].fastest_ms
            ratio = timing.fastest_ms / figures[EMPTY_APP].fastest_ms
            of_cpu = min(cpu) / figures[f"{EMPTY_APP}, CPU ms"]
            figures[f"{name}, times cdk init's app"] = round(ratio, 2)
            figures[f"{name}, times its CPU"] = round(of_cpu, 2)
            print(f"{name:32} {timing}; {beside:+8.0f} ms, {ratio:.2f} x empty", flush=True)
            print(f"{'':32} {min(cpu):8.0f} ms of CPU, {of_cpu:.2f} x empty", flush=True)
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
