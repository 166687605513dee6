"""What every benchmark shares: repeated timing, the machine, and a record of both as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Wall-clock milliseconds of one thing done several times."""

    runs: int
    fastest_ms: float
    """What the work costs when nothing else runs: compare this one."""
    median_ms: float
    slowest_ms: float

    def __str__(self) -> str:
        return (
            f"{self.fastest_ms:8.1f} ms fastest, {self.median_ms:8.1f} median, "
            f"{self.slowest_ms:8.1f} slowest of {self.runs}"
        )


def timed(work: Callable[[], object], *, runs: int) -> Timing:
    """Time ``work`` ``runs`` times in this process; nothing is left out as warm-up."""
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1e3)
    return Timing(
        runs=runs,
        fastest_ms=min(taken),
        median_ms=statistics.median(taken),
        slowest_ms=max(taken),
    )


def machine(*packages: str) -> dict[str, Any]:
    """Where the figures were made: processor, load, Python, versions of ``packages``."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load_1_minute": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in packages},
    }


def _processor() -> str:
    """The model's name where Linux tells it."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def arguments(description: str, *, runs: int) -> argparse.ArgumentParser:
    """The options all benchmarks have; a script may add its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=_count, default=runs, help=f"of each case (default {runs})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def report(
    name: str, figures: Mapping[str, Any], where: Mapping[str, Any], *, file: Path | None
) -> None:
    """Print the machine; write name, machine and figures to ``file``, if there is one."""
    versions = ", ".join(f"{key} {value}" for key, value in where["versions"].items())
    print(
        f"\n{where['processor']}, {where['cpus']} CPUs, load {where['load_1_minute']}; "
        f"{where['system']}; Python {where['python']}; {versions}; {where['date']}"
    )
    if file is not None:
        document = {
            "benchmark": name,
            "machine": dict(where),
            "figures": {
                key: asdict(value) if isinstance(value, Timing) else value
                for key, value in figures.items()
            },
        }
        file.write_text(json.dumps(document, indent=2) + "\n")
