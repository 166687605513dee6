"""The public API: complete, and free of ``aws_cdk`` until a construct is asked for."""

from __future__ import annotations

import subprocess
import sys

import cdk_blackwell


def test_every_public_name_is_there() -> None:
    for name in cdk_blackwell.__all__:
        assert getattr(cdk_blackwell, name) is not None


def test_planning_needs_neither_the_cdk_nor_torch() -> None:
    code = (
        "import sys, cdk_blackwell, cdk_blackwell.planning.plan; cdk_blackwell.make_plan; "
        "print([m for m in ('aws_cdk', 'jsii', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
