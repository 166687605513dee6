"""The panel of ``watch``: every number under its name, as it is written, and no row without one."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from rich.console import Console

from cdk_blackwell.cli.watch.command import _finite
from cdk_blackwell.cli.watch.frame import Frame
from cdk_blackwell.cli.watch.screen import WIDTH, panel

FRAME = Frame(
    time="2026-01-01T00:00:00+00:00",
    run_id="a",
    state="running",
    attempt=2,
    maximum_attempts=3,
    job_name="pretrain-a-2",
    phase="Training",
    step=None,
    steps=None,
    metrics={},
    checkpoint_step=0,
    checkpoint_age_seconds=None,
    eta_seconds=None,
    spend_usd=None,
    ceiling_usd=None,
    last_event="",
    ended=False,
    message="",
)


def row(frame: Frame, name: str) -> str | None:
    console = Console(width=WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(panel(frame))
    found = [line.strip("│ ") for line in captured.get().splitlines()]
    texts = [line.removeprefix(name).strip() for line in found if line.startswith(f"{name} ")]
    return texts[0] if texts else None


@pytest.mark.parametrize(
    ("attempt", "most", "text"),
    [
        (2, 3, "2 of 3, pretrain-a-2"),
        (3, 3, "3 of 3, pretrain-a-2"),
        (5, 3, "5, pretrain-a-2"),
        (2, None, "2, pretrain-a-2"),
    ],
)
def test_an_attempt_is_of_the_most_where_it_is_within_them(
    attempt: int, most: int | None, text: str
) -> None:
    assert row(replace(FRAME, attempt=attempt, maximum_attempts=most), "Attempt") == text


@pytest.mark.parametrize(("event", "text"), [("", "Training"), ("compiled", "Training, compiled")])
def test_the_phase_has_the_newest_event_beside_it(event: str, text: str) -> None:
    assert row(replace(FRAME, last_event=event), "Phase") == text


@pytest.mark.parametrize(
    ("name", "key", "value", "text"),
    [
        ("Loss", "loss", 3.25, "3.2500"),
        ("Held out", "validation_loss", 3.5, "3.5000"),
        ("Speed", "tokens_per_second", 81_920.0, "81,920 tokens/s"),
        ("MFU", "mfu", 41.54, "41.5 %"),
        ("Data wait", "data_wait_seconds", 0.004, "0.004 s per step"),
    ],
)
def test_a_number_has_its_row_only_where_it_is_known(
    name: str, key: str, value: float, text: str
) -> None:
    assert row(replace(FRAME, metrics={key: value}), name) == text
    assert row(FRAME, name) is None


def test_a_loss_that_is_no_number_is_null_in_json() -> None:
    frame = replace(FRAME, metrics={"loss": float("nan"), "mfu": float("inf"), "tokens": 3.0})
    assert _finite(asdict(frame))["metrics"] == {"loss": None, "mfu": None, "tokens": 3.0}
