"""Planning travels into Lambda and the training container, so it must stay light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cdk_blackwell.planning as planning

PROGRAM = """
import sys
import cdk_blackwell.planning
assert not [name for name in sys.modules if name.startswith("cdk_blackwell.planning.")]
for name in cdk_blackwell.planning.__all__:
    getattr(cdk_blackwell.planning, name)
known = set(sys.stdlib_module_names)
print(*sorted({name.partition(".")[0] for name in sys.modules} - known - {"cdk_blackwell"}))
"""


def test_all_of_planning_needs_the_standard_library_only() -> None:
    root = Path(planning.__file__).parents[2]
    result = subprocess.run(
        # Isolated, without site-packages: what is not in the standard library cannot be found.
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{PROGRAM}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() in ([], ["__main__"])


def test_every_exported_name_exists() -> None:
    assert sorted(planning.__all__) == dir(planning)
    assert all(getattr(planning, name) is not None for name in planning.__all__)
