"""The picture of the documentation is the dashboard that a job really gets."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cdk_blackwell.infrastructure.alarms import RUN_ALARMS, AlarmThresholds
from docs.dashboard import PICTURE, compact, picture, ticks
from docs.dashboard_body import alarm_state, computed
from docs.dashboard_sample import MINUTES, Points, Sample

PAGE = (PICTURE.parent / "dashboard.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def drawn() -> tuple[str, dict[str, Any]]:
    return picture()


def words(svg: str) -> list[str]:
    """Every text of a picture, in order."""
    return [
        "".join(e.itertext()) for e in ElementTree.fromstring(svg).iter() if e.tag[-4:] == "text"
    ]


def structure(body: dict[str, Any]) -> set[str]:
    """What the body names: titles, lines, limits and alarms."""
    found: set[str] = set()
    for widget in body["widgets"]:
        properties = widget["properties"]
        found.add(properties.get("title", ""))
        rows = [row[-1] for row in properties.get("metrics", []) if isinstance(row[-1], dict)]
        found |= {row["label"] for row in rows if "label" in row and row.get("visible", True)}
        limits = properties.get("annotations", {}).get("horizontal", [])
        found |= {f"{limit['label']}  {compact(limit['value'])}" for limit in limits}
        found |= {
            re.sub(r"^.*Monitoring|[0-9A-F]{8}$", "", alarm)
            for alarm in properties.get("alarms", [])
        }
    return found - {""}


def test_everything_that_the_dashboard_names_is_in_the_picture(
    drawn: tuple[str, dict[str, Any]],
) -> None:
    svg, body = drawn
    named = structure(body)
    assert {"Now", "tokens/s", "predicted MFU", "DataWait"} <= {
        name.partition("  ")[0] for name in named
    }
    assert named <= set(words(svg))
    assert "Training-Pretrain (mid tier)" in words(svg)


def test_the_committed_picture_is_of_today(drawn: tuple[str, dict[str, Any]]) -> None:
    """Figures of the plan may move a little between two drawings; names may not."""

    def named(svg: str) -> list[str]:
        return [text for text in words(svg) if not re.search(r"\d", text)]

    assert named(PICTURE.read_text(encoding="utf-8")) == named(drawn[0])


def test_the_sample_shows_an_alarm_that_the_graphs_explain(
    drawn: tuple[str, dict[str, Any]],
) -> None:
    shown = words(drawn[0])
    assert shown[shown.index("DataWait") + 1] == "ALARM"
    assert shown.count("ALARM") == 1
    assert shown.count("OK") == len(fields(AlarmThresholds))


@pytest.mark.parametrize(
    ("last", "state"), [([6.0] * 6, "ALARM"), ([6.0] * 5 + [4.0], "OK"), ([None] * 6, "OK")]
)
def test_the_state_of_an_alarm_follows_from_its_threshold(last: Points, state: str) -> None:
    points: Points = [*[None] * (len(MINUTES) - 6), *last]
    properties = {
        "MetricName": "StepTime",
        "Threshold": 5,
        "EvaluationPeriods": 6,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
    }
    numbers = Sample(metrics={"StepTime": points}, hosts={}, events=())
    assert alarm_state(properties, numbers) == state


def test_metric_math_is_computed_or_refused() -> None:
    halves: Points = [0.5] * len(MINUTES)
    assert computed("100 * a / b", {"a": halves, "b": halves})[0] == 100
    with pytest.raises(ValueError, match=r"not drawn: MAX\(a\)"):
        computed("MAX(a)", {"a": halves})


@pytest.mark.parametrize(("low", "high"), [(0, 277_800), (2.1, 8), (0, 0.3), (0, 800)])
def test_axes_have_round_ticks(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 3 <= len(found) <= 5
    assert all(low <= tick <= high for tick in found)
    (step,) = {round(b - a, 9) for a, b in pairwise(found)}
    assert round(step / 10 ** math.floor(math.log10(step)), 9) in {1, 2, 2.5, 5}


def test_the_page_lists_every_alarm_with_its_default() -> None:
    for alarm in RUN_ALARMS:
        assert re.search(rf"^\| {alarm.construct_id} \|.*`{alarm.threshold}`", PAGE, re.MULTILINE)
    defaults = AlarmThresholds()
    for field in fields(AlarmThresholds):
        assert f"`{field.name}` | {getattr(defaults, field.name)} |" in PAGE


def test_the_picture_is_small() -> None:
    assert Path(PICTURE).stat().st_size < 150_000
