"""Draws ``measured.svg`` from ``benchmarks/data``: ``python -m docs.measured``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from benchmarks.precision_loss import WINDOW, deviations
from cdk_blackwell.cli.plan.charts.save import save_chart

FOLDER: Final = Path(__file__).parent
DATA: Final = FOLDER.parent / "benchmarks" / "data"
SIZE: Final = {"width": 300, "height": 210}


def read(name: str) -> dict[str, Any]:
    """A benchmark's record."""
    value: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return value


def trainers(record: dict[str, Any]) -> dict[str, Any]:
    """Every measured pair of steps as a dot, so that the noise is seen; a bar at the fastest."""
    rounds = record["figures"]["rounds_ms"]
    rows = [
        {"who": name, "seconds": ms / 1e3} for each in rounds for name in each for ms in each[name]
    ]
    who = {"field": "who", "type": "nominal", "sort": list(rounds[0]), "title": None}
    seconds = {"type": "quantitative", "scale": {"zero": False}, "title": "seconds a step"}
    return {
        **SIZE,
        "title": f"One CPU rank, {record['machine']['date'][:10]}; bar: the fastest",
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "circle", "opacity": 0.5, "size": 50},
                "encoding": {"y": who, "x": {"field": "seconds", **seconds}},
            },
            {
                "mark": {"type": "tick", "color": "black", "thickness": 2},
                "encoding": {"y": who, "x": {"field": "seconds", "aggregate": "min", **seconds}},
            },
        ],
    }


def losses(record: dict[str, Any]) -> dict[str, Any]:
    """How far each precision's loss is from bf16's, in percent, by means over a window."""
    curves = record["figures"]["loss"]
    rows = [
        {"precision": name, "step": WINDOW * number, "percent": 100 * deviation}
        for name, curve in curves.items()
        for number, deviation in enumerate(deviations(curve, curves["bf16"]), start=1)
    ]
    return {
        **SIZE,
        "title": "Loss against bf16's, real text, emulated on CPU",
        "data": {"values": rows},
        "mark": "line",
        "encoding": {
            "x": {"field": "step", "type": "quantitative"},
            "y": {"field": "percent", "type": "quantitative", "title": "percent above bf16"},
            "color": {"field": "precision", "type": "nominal"},
        },
    }


def picture() -> dict[str, Any]:
    """Both side by side, as Vega-Lite."""
    return {
        "background": "white",
        # Text is wider where the page's font is not the one that the drawing measured.
        "padding": {"left": 45, "top": 8, "right": 30, "bottom": 8},
        "hconcat": [trainers(read("trainer")), losses(read("precision_loss"))],
        "resolve": {"scale": {"color": "independent"}},
    }


if __name__ == "__main__":
    save_chart(picture(), FOLDER / "measured.svg")
