"""How long a contributor waits for the fast tests, and for which of them most.

``python -m benchmarks.suite`` from the repository's root runs what ``make test`` runs by pytest,
and collects it alone beside that: the ratio of both says how much is testing and how much is
importing torch and the CDK, which every call of pytest pays.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.measure import arguments, machine, report, timed

ROOT = Path(__file__).parents[1]


def run_pytest(*options: str) -> None:
    """Without a word; SystemExit when a test fails, since then the time says nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout[-2_000:]}")


def seconds_by_folder(cases: Iterable[ElementTree.Element]) -> dict[str, float]:
    """Seconds of all tests below a folder of ``tests``, the longest first; pages count as docs."""
    spent: defaultdict[str, float] = defaultdict(float)
    for case in cases:
        match = re.match(r"tests\.(\w+)\.", case.get("classname", ""))
        spent[match[1] if match else "docs and others"] += float(case.get("time", "0"))
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


def measure(junit: Path, *, runs: int) -> dict[str, Any]:
    """All figures."""
    collecting = timed(lambda: run_pytest("--collect-only"), runs=runs)
    whole = timed(lambda: run_pytest(f"--junit-xml={junit}"), runs=1)
    cases = list(ElementTree.parse(junit).iter("testcase"))
    spent = seconds_by_folder(cases)
    return {
        "collecting": collecting,
        "whole": whole,
        "whole, times collecting": round(whole.fastest_ms / collecting.fastest_ms, 1),
        "tests": len(cases),
        "seconds by folder": {name: round(seconds, 1) for name, seconds in spent.items()},
    }


def main() -> None:
    """Print and keep them."""
    options = arguments(str(__doc__).splitlines()[0], runs=2).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder) / "junit.xml", runs=options.runs)
    print(f"collecting {figures['collecting']}")
    print(f"whole      {figures['whole']}")
    print(f"{figures['tests']} tests, {figures['whole, times collecting']} times collecting them")
    for name, seconds in figures["seconds by folder"].items():
        print(f"  {name:20s} {seconds:8.1f} s")
    packages = ("pytest", "hypothesis", "torch", "aws-cdk-lib")
    report("suite", figures, machine(*packages), file=options.json)


if __name__ == "__main__":
    main()
