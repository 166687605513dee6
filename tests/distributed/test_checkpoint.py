"""A stopped run continues as if nothing had happened; a damaged checkpoint never counts."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.distributed.forked import fork_ranks, train_ranks
from tests.training_scripts.tiny import tiny_spec, write_container
from trainer import checkpoint, dataset, stopping
from trainer.checkpoint import Checkpointer
from trainer.parallel import World


def step_names(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("checkpoints/*"))


def test_a_resumed_run_is_bit_identical_at_equal_ranks(tmp_path: Path) -> None:
    spec = tiny_spec()
    through = train_ranks(2, spec, write_container(tmp_path / "through", spec))[0]
    root = write_container(tmp_path / "stopped", spec)
    first = train_ranks(2, spec, root, sigterm_at={0: 3, 1: 3})
    second = train_ranks(2, spec, root)[0]

    assert [told.stopped for told in first] == [True, True]
    assert second.events("resumed")[0]["step"] == 3
    assert list(second.series("loss")) == [4, 5, 6]
    for key in ("loss", "gradient_norm", "learning_rate"):
        joined = first[0].series(key) | second.series(key)
        assert joined == through.series(key), key
    # A stopping rank saves at once; it does not spend its two minutes on validation.
    assert first[0].series("validation_loss").keys() == {0}
    assert second.series("validation_loss")[6] == through.series("validation_loss")[6]


def test_one_signalled_rank_stops_all_at_the_same_step(tmp_path: Path) -> None:
    spec = tiny_spec()
    root = write_container(tmp_path, spec)
    told = train_ranks(2, spec, root, sigterm_at={1: 2})
    assert [(one.step, one.stopped) for one in told] == [(2, True), (2, True)]
    assert step_names(root) == ["step-0000000002"]
    complete = json.loads((root / "checkpoints/step-0000000002/COMPLETE.json").read_text())
    assert (complete["step"], complete["ranks"]) == (2, 2)
    assert complete["tokens"] == 2 * spec.recipe.global_batch_tokens
    assert ".metadata" in complete["files"]
    progress = json.loads((root / "output/data/progress.json").read_text())
    assert progress["last_complete_step"] == progress["step"] == 2


def test_a_run_continues_on_another_number_of_ranks(tmp_path: Path) -> None:
    spec = tiny_spec()
    through = train_ranks(2, spec, write_container(tmp_path / "through", spec))[0]
    root = write_container(tmp_path / "resharded", spec)
    train_ranks(2, spec, root, sigterm_at={0: 3})
    (alone,) = train_ranks(1, spec, root)
    expected = {step: loss for step, loss in through.series("loss").items() if step > 3}
    assert alone.series("loss") == pytest.approx(expected, abs=1e-6)


FREQUENT = tiny_spec(steps=4, checkpoint={"interval_seconds": 1e-6})


@pytest.fixture(scope="module")
def stopped_at_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_container(tmp_path_factory.mktemp("stopped"), FREQUENT)
    train_ranks(2, FREQUENT, root, sigterm_at={0: 3})
    return root


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("flip", "SHA-256"),
        ("cut", "bytes"),
        ("remove", "missing"),
        ("unmark", "not complete"),
        ("unlist", "not listed"),
    ],
)
def test_a_damaged_newest_checkpoint_is_skipped_with_a_warning(
    damage: str, reason: str, stopped_at_three: Path, tmp_path: Path
) -> None:
    root = tmp_path / "copy"
    shutil.copytree(stopped_at_three, root)
    newest = root / "checkpoints" / "step-0000000003"
    victim = newest / "__1_0.distcp"
    content = victim.read_bytes()
    if damage == "flip":
        victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "cut":
        victim.write_bytes(content[:-1])
    elif damage == "remove":
        victim.unlink()
    elif damage == "unlist":
        marker = json.loads((newest / "COMPLETE.json").read_text())
        del marker["files"][victim.name]
        (newest / "COMPLETE.json").write_text(json.dumps(marker))
        victim.unlink()
    else:
        (newest / "COMPLETE.json").unlink()

    older = [name for name in step_names(root) if name < newest.name][-1]
    told = train_ranks(2, FREQUENT, root)[0]
    (skipped,) = told.events("checkpoint_skipped")
    assert skipped["folder"] == newest.name
    assert reason in skipped["reason"]
    assert f"step-{told.events('resumed')[0]['step']:010d}" == older
    assert told.step == 4


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    spec = tiny_spec(steps=5, checkpoint={"interval_seconds": 1e-6, "keep": 2})
    root = write_container(tmp_path, spec)
    train_ranks(2, spec, root)
    # Which others were saved depends on how long each took to write behind the training.
    assert len(step_names(root)) == 2
    assert step_names(root)[-1] == "step-0000000005"


def test_upload_markers_never_get_into_a_checkpoint_nor_hinder_its_use(tmp_path: Path) -> None:
    spec = tiny_spec(steps=4, checkpoint={"interval_seconds": 1e-6, "keep": 1})
    root = write_container(tmp_path, spec)
    # The upload of an earlier try at this very step left a file behind.
    folder = root / "checkpoints" / "step-0000000002"
    folder.mkdir(parents=True)
    for name in ("__0_0.distcp.sagemaker-uploaded", "__1_0.distcp.sagemaker-uploading"):
        (folder / name).touch()
    train_ranks(2, spec, root, sigterm_at={0: 2})
    (folder / ".metadata.sagemaker-uploading").touch()
    files = json.loads((folder / "COMPLETE.json").read_text())["files"]
    assert set(files) == {".metadata", "__0_0.distcp", "__1_0.distcp"}

    told = train_ranks(2, spec, root)[0]
    assert told.events("resumed")[0]["step"] == 2
    # Spared while it is uploaded, though only one is to be kept.
    assert step_names(root) == ["step-0000000002", "step-0000000004"]


def test_a_checkpoint_of_other_data_is_refused(stopped_at_three: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(stopped_at_three, root)
    manifest = root / "input" / "data" / "dataset" / "manifest.json"
    told = json.loads(manifest.read_text())
    told["splits"]["train"].append(told["splits"]["train"][0])
    manifest.write_text(json.dumps(told))
    with pytest.raises(AssertionError, match="was made with other data"):
        train_ranks(2, FREQUENT, root)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    spec = tiny_spec(steps=2)
    root = write_container(tmp_path, spec)
    train_ranks(1, spec, root)
    other = replace(spec, recipe=replace(spec.recipe, seed=8))
    with pytest.raises(AssertionError, match="start a new run_id"):
        train_ranks(1, other, root)


def test_a_completed_run_is_not_trained_again(tmp_path: Path) -> None:
    spec = tiny_spec(steps=2)
    root = write_container(tmp_path, spec)
    train_ranks(1, spec, root)
    (again,) = train_ranks(1, spec, root)
    assert again.events("completed")[0]["step"] == 2
    assert not again.series("loss")


def test_a_stop_within_a_step_drops_it_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank is signalled between two micro-batches; all leave before the next one."""
    monkeypatch.setattr(stopping, "CHECK_SECONDS", 0.0)  # these steps are too short for a question
    spec = tiny_spec()
    through = train_ranks(2, spec, write_container(tmp_path / "through", spec))[0]
    root = write_container(tmp_path / "stopped", spec)
    first = train_ranks(2, spec, root, sigterm_at={1: 2.5})
    assert [(one.step, one.stopped) for one in first] == [(2, True), (2, True)]
    assert step_names(root) == ["step-0000000002"]
    second = train_ranks(2, spec, root)[0]
    assert first[0].series("loss") | second.series("loss") == through.series("loss")


def test_what_a_killed_save_left_is_written_over(tmp_path: Path) -> None:
    """The resumed run comes by the same step again."""
    spec = tiny_spec(steps=1)
    root = write_container(tmp_path, spec)
    folder = root / "checkpoints" / "step-0000000001"
    folder.mkdir(parents=True)
    (folder / "__5_0.distcp").write_bytes(b"half of a shard")
    told = train_ranks(2, spec, root)[0]
    assert not told.events("checkpoint_failed")
    assert told.events("checkpoint")[-1]["step"] == 1
    assert (folder / "COMPLETE.json").exists()
    assert not (folder / "__5_0.distcp").exists()


def test_a_stop_while_the_dataset_is_waited_for_ends_without_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may still import it; only the first rank looks."""

    def signal_and_miss(_: Path) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return "nothing is there yet"

    monkeypatch.setattr(dataset, "find_missing", signal_and_miss)
    monkeypatch.setattr(dataset, "patience_seconds", lambda _: 60.0)
    spec = tiny_spec()
    told = train_ranks(2, spec, write_container(tmp_path, spec))
    assert [(one.step, one.stopped) for one in told] == [(0, True), (0, True)]
    assert not step_names(tmp_path)


def test_a_save_that_fails_is_told_of_and_training_goes_on(tmp_path: Path) -> None:
    spec = tiny_spec(steps=6, checkpoint={"interval_seconds": 1e-6})
    root = write_container(tmp_path, spec)
    (root / "checkpoints").mkdir()
    (root / "checkpoints" / "step-0000000001").write_text("in the way")
    told = train_ranks(2, spec, root)[0]
    (failed,) = told.events("checkpoint_failed")
    assert (failed["step"], failed["failures"], failed["last_complete_step"]) == (1, 1, 0)
    assert "step-0000000001" in failed["reason"]
    assert 1 in told.series("checkpoint_failures").values()
    assert told.events("checkpoint")[-1]["step"] == told.step == 6


def test_saves_that_keep_failing_end_the_run_with_the_reason(tmp_path: Path) -> None:
    spec = tiny_spec(steps=200, checkpoint={"interval_seconds": 1e-6})
    root = write_container(tmp_path, spec)
    (root / "checkpoints").mkdir()
    for step in range(1, 201):
        (root / "checkpoints" / f"step-{step:010d}").write_text("in the way")
    with pytest.raises(AssertionError, match="3 checkpoints in a row could not be written"):
        train_ranks(2, spec, root)


def test_a_stop_saves_only_what_is_predicted_to_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checkpointer, "predicted_seconds", 1_000.0)
    spec = tiny_spec(steps=8, checkpoint={"interval_seconds": 1e-6})
    root = write_container(tmp_path, spec)
    told = train_ranks(2, spec, root, sigterm_at={0: 5})[0]
    (stop,) = told.events("stopped")
    kept = stop["last_complete_step"]
    assert step_names(root)[-1] == f"step-{kept:010d}"
    if kept < 5:  # else a save of this very step had just begun
        (left_out,) = told.events("stop_without_save")
        assert left_out["predicted_seconds"] == 1_000.0
        assert 0 < left_out["seconds_left"] <= 100.0


def test_a_stop_breaks_off_a_validation_and_saves_the_step_before_it(tmp_path: Path) -> None:
    spec = tiny_spec(steps=6, limits={"validation_interval_steps": 3})
    root = write_container(tmp_path, spec)
    told = train_ranks(2, spec, root, sigterm_at={0: 3.5})
    assert {one.step for one in told} == {3}
    assert set(told[0].series("validation_loss")) == {0}
    assert told[0].events("stopped")[0]["last_complete_step"] == 3


def test_saving_before_any_step_counted_leaves_adams_count_at_zero() -> None:
    """torch fills an empty optimizer by a step of its own, which would be one too many."""

    def saved(world: World) -> list[float]:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        state = checkpoint._state(model, optimizer)["optimizer"]["state"]
        steps = [moments["step"] for moments in (*optimizer.state.values(), *state.values())]
        return [float(step) for step in steps]

    assert fork_ranks(1, saved) == [[0.0] * 4]
