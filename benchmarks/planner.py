"""How long the planner keeps a user waiting: its import, its search, a whole plan.

``python -m benchmarks.planner`` from the repository's root. Aims: a search over 64 nodes under
100 ms, the import under 60 ms.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

from benchmarks.measure import Timing, arguments, machine, report, timed
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.search import search_layouts
from cdk_blackwell.planning.wish import make_wish

NODES = 64
CASES = [(model, length) for model in ("llama-3.1-8b", "llama-3-64b") for length in (8192, 131_072)]
IMPORTS = {
    "json": "import json",
    "cdk_blackwell.planning": "import cdk_blackwell.planning",
    "make_plan": "from cdk_blackwell.planning import make_plan",
}
"""Each in a fresh interpreter; the second alone loads names on first use, the third uses one."""

_IN_A_FRESH_INTERPRETER = """
import time
start = time.perf_counter()
{statement}
print(time.perf_counter() - start)
"""


def import_seconds(statement: str) -> float:
    """Of an import statement, without the interpreter's own start."""
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_FRESH_INTERPRETER.format(statement=statement)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def search(model: str, length: int) -> None:
    """All layouts of 64 nodes, from the wish to the ranking; no cache outlives a call."""
    request = Request(
        model=ModelShape.preset(model), sequence_length=length, instance_count=NODES
    ).completed()
    search_layouts(make_wish(request, gpus=NODES * 8))


def plan(model: str, length: int) -> None:
    """The fewest nodes that fit, with the five explanations."""
    _ = make_plan(model=ModelShape.preset(model), sequence_length=length).decisions


def main() -> None:
    """Measure, print, and write with ``--json``."""
    options = arguments(__doc__.partition("\n")[0], runs=10).parse_args()
    figures: dict[str, Any] = {}
    for name, statement in IMPORTS.items():
        fastest = min(import_seconds(statement) for _ in range(options.runs)) * 1e3
        figures[f"import {name}, ms"] = round(fastest, 2)
        print(f"{'import ' + name:34} {fastest:8.1f} ms fastest of {options.runs}")
    ratio = figures["import cdk_blackwell.planning, ms"] / figures["import json, ms"]
    figures["import cdk_blackwell.planning, times import json"] = round(ratio, 2)
    print(f"{'import cdk_blackwell.planning':34} {ratio:8.2f} x import json")
    for work in (search, plan):
        for model, length in CASES:
            on = f" on {NODES} nodes" if work is search else ""
            name = f"{work.__name__} {model} at {length // 1024}K{on}"
            timing: Timing = timed(partial(work, model, length), runs=options.runs)
            figures[name] = timing
            print(f"{name:40} {timing}")
    report("planner", figures, machine("cdk-blackwell"), file=options.json)


if __name__ == "__main__":
    main()
