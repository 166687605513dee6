"""One run as users have it: the CDK's own template validator is on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_cdks_own_validator_has_nothing_to_say(tmp_path: Path) -> None:
    context = {
        "packages_in_image": "true",
        "region": "us-west-2",
        "availability_zone": "us-west-2b",
        **json.loads((ROOT / "cdk.json").read_text())["context"],
    }
    environment = {key: value for key, value in os.environ.items() if key != "CDK_VALIDATION"}
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={
            **environment,
            "CDK_CONTEXT_JSON": json.dumps(context),
            "CDK_OUTDIR": str(tmp_path / "out"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "out" / "SmallModelStack.template.json").is_file()
