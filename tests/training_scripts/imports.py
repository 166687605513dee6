"""What a module of the bundle imports, seen in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import launch

SCRIPTS = Path(launch.__file__).parent


def imported_of(packages: set[str], *, by: str) -> set[str]:
    """Those of ``packages`` that are imported after the module ``by`` is."""
    probe = f"import sys, {by}; print(*({packages!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", probe], cwd=SCRIPTS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())
