"""The demo's parts: what they show, refuse and end."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from cdk_blackwell.cli.demo import settings, training
from cdk_blackwell.cli.demo.command import check_writable
from cdk_blackwell.cli.demo.flow import Demo, check_tools, describe
from cdk_blackwell.cli.demo.processes import end_tree, run_logged
from cdk_blackwell.cli.demo.screen import Screen, sparkline
from cdk_blackwell.cli.demo.settings import DemoFolders, shrink
from cdk_blackwell.cli.demo.summary import Summary
from cdk_blackwell.cli.demo.training import Attempt
from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.cli.main import app
from cdk_blackwell.planning.model_shape import ModelShape

LLAMA = ModelShape.preset("llama-3.2-1b")


def attempt_with(*losses: float, name: str = "job-1") -> Attempt:
    return Attempt(
        name=name,
        metrics=[
            {"step": 10 * (i + 1), "loss": loss, "tokens_per_second": 1000.0 + i}
            for i, loss in enumerate(losses)
        ],
    )


def test_the_shrunk_model_keeps_its_family() -> None:
    small = shrink(LLAMA)
    assert 2_000_000 < small.parameter_count < 8_000_000
    assert small.tie_word_embeddings == LLAMA.tie_word_embeddings
    assert small.rope_theta == LLAMA.rope_theta
    assert (
        small.num_attention_heads // small.num_key_value_heads
        == LLAMA.num_attention_heads // LLAMA.num_key_value_heads
    )


def test_losses_are_drawn_from_low_to_high() -> None:
    assert sparkline([3.0, 2.0, 1.0], width=10) == "█▅▁"
    assert len(sparkline([float(i) for i in range(100)], width=48)) == 48
    assert sparkline([], width=10) == ""


def test_a_validation_alone_is_no_progress_to_draw() -> None:
    attempt = Attempt(name="job-1", metrics=[{"step": 0, "validation_loss": 8.3}])
    assert describe(attempt) == "job-1: starting"


def test_progress_fits_the_screen() -> None:
    assert "step 20/200" in describe(attempt_with(5.0, 4.0))
    longest = attempt_with(10.0)
    longest.metrics[0] |= {"step": settings.STEPS, "tokens_per_second": 99_999.0}
    assert len("⠙ Attempt 2, resubmitted " + describe(longest)) <= 80


def test_the_summary_tells_the_fall_of_the_loss_and_the_resumption() -> None:
    first = attempt_with(8.0, 6.0)
    second = attempt_with(5.0, 4.0, name="job-2")
    second.events.append({"event": "resumed", "step": 20})
    first.metrics[0]["validation_loss"] = 8.0
    second.metrics[-1]["validation_loss"] = 5.0

    summary = Summary()
    summary.take_attempts([first, second])

    assert summary.loss["training"] == {"first": 8.0, "last": 4.0, "fall": 0.5}
    assert summary.loss["validation"]["fall"] == 0.375
    assert summary.resumed_from_step == 20
    assert [attempt["resumed_from_step"] for attempt in summary.attempts] == [None, 20]
    assert summary.tokens_per_second == 1000.5


def test_json_has_standard_output_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(self: Demo, *, port: int) -> None:
        self.screen.line("a phase")
        self.summary.resource_count = 64
        self.summary.take_attempts([attempt_with(8.0, 6.0)])

    monkeypatch.setattr(Demo, "run", short)
    done = CliRunner().invoke(app, ["demo", "--json", "--directory", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["resource_count"] == 64
    assert "a phase" in done.stderr


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years of work")
    demo = Demo(
        application=tmp_path,
        folders=DemoFolders(root=tmp_path),
        model=LLAMA,
        screen=Screen(record=False),
    )
    with pytest.raises(CommandError, match="--directory"):
        demo.run(port=0)
    assert (tmp_path / "thesis.txt").read_text() == "ten years of work"


@pytest.fixture
def earlier_demo(tmp_path: Path) -> DemoFolders:
    folders = DemoFolders(root=tmp_path / "demo")
    folders.root.mkdir()
    (folders.root / settings.MARKER_FILE).touch()
    folders.summary.write_text("an earlier result")
    return folders


def test_too_little_disk_is_said_before_an_earlier_result_is_touched(
    earlier_demo: DemoFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "FREE_DISK_BYTES", 1 << 60)
    demo = Demo(
        application=earlier_demo.root,
        folders=earlier_demo,
        model=LLAMA,
        screen=Screen(record=False),
    )
    with pytest.raises(CommandError, match="GiB free"):
        demo.run(port=0)
    assert earlier_demo.summary.read_text() == "an earlier result"


def test_a_taken_port_is_said_before_an_earlier_result_is_touched(
    earlier_demo: DemoFolders,
) -> None:
    demo = Demo(
        application=earlier_demo.root,
        folders=earlier_demo,
        model=LLAMA,
        screen=Screen(record=False),
    )
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(CommandError, match="--port"):
            demo.run(port=holder.getsockname()[1])
    assert earlier_demo.summary.read_text() == "an earlier result"


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/demo"])
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("in the way")
    demo = Demo(
        application=tmp_path,
        folders=DemoFolders(root=tmp_path / folder),
        model=LLAMA,
        screen=Screen(record=False),
    )
    with pytest.raises(CommandError, match="--directory"):
        demo.run(port=0)
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_picture_that_cannot_be_saved_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--record"):
        check_writable(tmp_path)


def test_outside_a_clone_the_demo_says_where_to_run_it(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="clone of the repository"):
        check_tools(tmp_path)


def test_a_command_and_its_children_end_with_the_caller(tmp_path: Path) -> None:
    child = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('up', flush=True); time.sleep(60)"
    )

    family: list[psutil.Process] = []
    others = set(psutil.Process().children(recursive=True))

    def interrupt(_line: str) -> None:
        family.extend(set(psutil.Process().children(recursive=True)) - others)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_logged(
            [sys.executable, "-c", child],
            environment={},
            folder=tmp_path,
            log=tmp_path / "log",
            on_line=interrupt,
        )
    assert len(family) == 2
    assert not any(process.is_running() for process in family)


def test_only_the_ranks_of_a_container_are_killed(tmp_path: Path) -> None:
    launcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys, time\n"
            "sleep = [sys.executable, '-c', 'import time; time.sleep(60)']\n"
            "rank = subprocess.Popen(sleep, env={'RANK': '0', 'LOCAL_RANK': '0'})\n"
            "other = subprocess.Popen(sleep, env={})\n"
            "print('up', flush=True); rank.wait(); time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        (tmp_path / "container.json").write_text(json.dumps({"pid": launcher.pid}))
        deadline = time.monotonic() + 10
        killed: list[int] = []
        while not killed and time.monotonic() < deadline:
            killed = training.kill_workers(tmp_path)
        assert len(killed) == 1
        assert launcher.poll() is None
    finally:
        end_tree(launcher.pid)
        launcher.wait()
