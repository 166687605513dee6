"""``init`` writes an application that synthesises as it stands, and overwrites nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.cli.init.templates import FILES, TEMPLATES, Name, write_application
from cdk_blackwell.cli.main import app
from cdk_blackwell.planning.contracts import stack_output_name

WHEELHOUSE = Path(__file__).parents[3] / "wheelhouse"


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_file_is_there_and_filled_in(name: Name, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", "--template", name, str(tmp_path / "new"), "--json"])
    assert [Path(file) for file in json.loads(done.stdout)["files"]] == [
        tmp_path / "new" / file for file in FILES
    ]
    source = (tmp_path / "new" / "app.py").read_text()
    compile(source, "app.py", "exec")
    assert f'ModelShape.preset("{TEMPLATES[name].model}")' in source
    json.loads((tmp_path / "new" / "cdk.json").read_text())


def test_a_folder_with_anything_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CommandError, match="not an empty folder"):
        write_application("small", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
@pytest.mark.skipif(not WHEELHOUSE.exists(), reason="run 'make setup', which fetches the wheels")
@pytest.mark.parametrize("name", TEMPLATES)
def test_it_synthesises_and_passes_its_own_test(name: Name, tmp_path: Path) -> None:
    write_application(name, tmp_path)
    (tmp_path / "wheelhouse").symlink_to(WHEELHOUSE)
    environment = {**os.environ, "CDK_OUTDIR": str(tmp_path / "cdk.out")}
    for words in (("app.py",), ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    values = TEMPLATES[name]
    template = json.loads(
        (tmp_path / "cdk.out" / f"{values.prefix}-Training.template.json").read_text()
    )
    assert stack_output_name(values.job_name) in template["Outputs"]
