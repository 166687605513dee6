"""A checkpoint exported offline is, byte for byte, what the run itself would have exported."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from safetensors import safe_open

import export_checkpoint
from cdk_blackwell.planning.run_spec import RunSpec
from export_checkpoint import Options, choose_checkpoint, main
from tests.distributed.forked import fork_ranks, train_ranks
from tests.training_scripts.tiny import tiny_shape, tiny_spec, write_container
from trainer.checkpoint import recipe_sha256
from trainer.errors import TrainingError
from trainer.parallel import World

SPEC = tiny_spec(
    steps=4,
    shape=tiny_shape(qk_norm="full", norm_placement="post", tie_word_embeddings=True),
    checkpoint={"interval_seconds": 1e-6, "export": True},
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_container(tmp_path_factory.mktemp("run"), SPEC)
    train_ranks(2, SPEC, root)
    return root


def arguments(root: Path, output: Path) -> list[str]:
    return [
        f"--run={root / 'input/data/config/run.json'}",
        f"--checkpoints={root / 'checkpoints'}",
        f"--dataset={root / 'input/data/dataset'}",
        f"--output={output}",
    ]


def call(*words: str) -> tuple[int, str]:
    """Exit code and what was printed, from a process of its own."""

    def run(_: World) -> tuple[int, str]:
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            return main(words), printed.getvalue()

    (told,) = fork_ranks(1, run)
    return told


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_equals_the_export_of_the_run(finished: Path, tmp_path: Path) -> None:
    code, printed = call(*arguments(finished, tmp_path / "model"))
    assert code == 0
    assert "step-0000000004 exported to" in printed
    assert contents(tmp_path / "model") == contents(finished / "model")
    assert json.loads((tmp_path / "model/config.json").read_text())["model_type"] == "olmo2"


def older_step(root: Path) -> int:
    """The newest complete step before the last; which that is depends on how long saves took."""
    steps = sorted(int(path.parent.name[5:]) for path in root.glob("checkpoints/*/COMPLETE.json"))
    return [step for step in steps if step < SPEC.train_steps][-1]


def test_an_older_step_and_another_number_format_can_be_chosen(
    finished: Path, tmp_path: Path
) -> None:
    step = older_step(finished)
    code, printed = call(*arguments(finished, tmp_path / "m"), f"--step={step}", "--dtype=fp32")
    assert (code, f"step-{step:010d}" in printed) == (0, True)
    with safe_open(tmp_path / "m/model.safetensors", framework="pt") as opened:
        assert opened.get_slice("model.norm.weight").get_dtype() == "F32"
    assert json.loads((tmp_path / "m/config.json").read_text())["dtype"] == "float32"


def test_several_files_are_read_one_after_the_other(finished: Path, tmp_path: Path) -> None:
    def run(_: World) -> int:
        words = {
            "run": finished / "input/data/config/run.json",
            "checkpoints": finished / "checkpoints",
            "dataset": finished / "input/data/dataset",
            "output": tmp_path / "model",
        }
        asked: list[int] = []
        read = export_checkpoint.read_parameters

        def count(*rest: Any) -> Any:
            asked.append(len(rest[2]))
            return read(*rest)

        with patch.object(export_checkpoint, "read_parameters", count):
            export_checkpoint.export_checkpoint(
                Options(**words, step=None, dtype=None), maximum_file_bytes=20_000
            )
        return len(asked)

    assert fork_ranks(1, run)[0] == len(list((tmp_path / "model").glob("*.safetensors"))) > 1


def test_damage_is_passed_over_unless_that_step_was_asked_for(
    finished: Path, tmp_path: Path
) -> None:
    newest = finished / "checkpoints/step-0000000004"
    marker = (newest / "COMPLETE.json").read_bytes()
    (newest / "COMPLETE.json").unlink()
    try:
        chosen = choose_checkpoint(finished / "checkpoints", None, recipe_sha256(SPEC))
        code, printed = call(*arguments(finished, tmp_path / "model"), "--step=4")
    finally:
        (newest / "COMPLETE.json").write_bytes(marker)
    assert chosen.name == f"step-{older_step(finished):010d}"
    assert code == 2
    assert "step-0000000004: it is not complete" in printed
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_whose_marker_leaves_a_file_out_is_passed_over(finished: Path) -> None:
    marker = finished / "checkpoints/step-0000000004/COMPLETE.json"
    honest = marker.read_text()
    told = json.loads(honest)
    del told["files"]["__0_0.distcp"]
    marker.write_text(json.dumps(told))
    try:
        chosen = choose_checkpoint(finished / "checkpoints", None, recipe_sha256(SPEC))
    finally:
        marker.write_text(honest)
    assert chosen.name == f"step-{older_step(finished):010d}"


def other_run(spec: RunSpec, root: Path) -> Path:
    path = root / "run.json"
    path.write_text(replace(spec, recipe=replace(spec.recipe, seed=99)).to_json())
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tmp: ["--output", str(tmp)], "exists; give a folder that does not"),
        (lambda tmp: ["--run", str(tmp / "none.json")], "none.json"),
        (lambda tmp: ["--run", str(other_run(SPEC, tmp))], "another model, recipe or length"),
        (lambda tmp: ["--checkpoints", str(tmp)], "no checkpoint that can be exported (none at"),
        (lambda tmp: ["--dataset", str(tmp)], "manifest"),
    ],
    ids=["output", "run", "other-run", "checkpoints", "dataset"],
)
def test_mistakes_are_named(
    change: Callable[[Path], list[str]], words: str, finished: Path, tmp_path: Path
) -> None:
    code, printed = call(*arguments(finished, tmp_path / "model"), *change(tmp_path))
    assert code == 2
    assert words in printed
    assert not (tmp_path / "model").exists()


def test_a_run_of_another_recipe_is_not_this_run(finished: Path) -> None:
    with pytest.raises(TrainingError, match="another model, recipe or length"):
        choose_checkpoint(finished / "checkpoints", None, "0" * 64)
