"""Draws ``dashboard.svg`` from the body of a real job's dashboard: ``python -m docs.dashboard``.

Titles, lines, axes, limits, alarms and places are read from the synthesised template, and the state
of an alarm follows from its own threshold; only the numbers are a sample (``dashboard_sample.py``).
"""

from __future__ import annotations

import math
import re
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from aws_cdk import App, Duration, Environment, Stack
from aws_cdk.assertions import Template

from cdk_blackwell import Foundation, MidModelJob, ModelShape
from docs.dashboard_body import Line, alarm_state, body_of, lines_of
from docs.dashboard_sample import MINUTES, Sample, sample

PICTURE: Final = Path(__file__).parent / "dashboard.svg"
INSTANCES: Final = 4
BATCH_TOKENS: Final = 4_194_304
HOURLY_USD: Final = 98.84

COLUMN, ROW, GAP = 54, 46, 6
"""Pixels of a cell of CloudWatch's grid, and half of what lies between two widgets."""
INK, FAINT, EDGE, PAGE = "#16191f", "#5f6b7a", "#d5dbdb", "#f2f3f3"
STATES: Final = {"OK": "#1d8102", "ALARM": "#d13212"}
FONT: Final = "'Amazon Ember', 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
FIRST_HOUR: Final = 8


def synthesised() -> tuple[Template, MidModelJob]:
    """A job like those of the guides, in a stack of its own."""
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(App(outdir=folder), "Training", env=Environment(region="us-west-2"))
        job = MidModelJob(
            stack,
            "Pretrain",
            foundation=Foundation(stack, "Foundation", availability_zone="us-west-2b"),
            model=ModelShape.preset("llama-3.1-8b"),
            dataset_prefix="tokens/",
            sequence_length=32_768,
            global_batch_tokens=BATCH_TOKENS,
            train_tokens=11_000_000_000,
            instance_count=INSTANCES,
            max_runtime=Duration.hours(8),
            max_attempts=2,
            hourly_price_usd=HOURLY_USD,
            max_cost_usd=7_000,
            packages_in_image=True,
        )
        return Template.from_stack(stack), job


def compact(value: float) -> str:
    """As CloudWatch writes it: 243k, 9.31, 0.04."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def ticks(low: float, high: float) -> list[float]:
    """Round values from ``low`` to ``high``, at most five."""
    rough = (high - low) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * part for part in (1, 2, 2.5, 5, 10) if power * part >= rough)
    first = math.ceil(low / step)
    return [step * at for at in range(first, math.floor(high / step) + 1)]


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 11,
    colour: str = INK,
    bold: bool = False,
    anchor: str = "start",
    extra: str = "",
) -> str:
    """One line of text."""
    weight = ' font-weight="700"' if bold else ""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}"{weight} '
        f'text-anchor="{anchor}"{extra}>{escape(words)}</text>'
    )


def box(x: float, y: float, width: float, height: float, *, fill: str, edge: str = "none") -> str:
    """A rectangle with CloudWatch's round corners."""
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="6" '
        f'fill="{fill}" stroke="{edge}"/>'
    )


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A plot's place and its axes."""

    x: float
    y: float
    width: float
    height: float
    low: float
    high: float

    def across(self, at: float) -> float:
        """Pixel of the point with index ``at``."""
        return self.x + self.width * at / (len(MINUTES) - 1)

    def up(self, value: float) -> float:
        """Pixel of a value."""
        return self.y + self.height * (1 - (value - self.low) / (self.high - self.low))

    def path(self, line: Line, *, width: float = 1.5) -> str:
        """The line, interrupted where nothing was published."""
        steps, pen = [], "M"
        for at, value in enumerate(line.points):
            if value is None:
                pen = "M"
                continue
            steps.append(f"{pen}{self.across(at):.1f} {self.up(value):.1f}")
            pen = "L"
        return (
            f'<path d="{"".join(steps)}" fill="none" stroke="{line.colour}" '
            f'stroke-width="{width}" stroke-linejoin="round"/>'
        )


def graph(properties: dict[str, Any], numbers: Sample, width: float, height: float) -> list[str]:
    """A time series with its axes, limits and legend."""
    lines = lines_of(properties["metrics"], numbers)
    limits = properties.get("annotations", {}).get("horizontal", [])
    axis = properties.get("yAxis", {}).get("left", {})
    values = [p for line in lines for p in line.points if p is not None]
    values += [limit["value"] for limit in limits]
    low = axis.get("min", min(values))
    high = axis.get("max", low + 1.12 * (max(values) - low))
    entries, legend = _legend(lines, width - 28)
    bottom = 20 + 14 * legend
    frame = Frame(x=52, y=40, width=width - 70, height=height - 58 - bottom, low=low, high=high)
    drawn = []
    for value in ticks(low, high):
        y = frame.up(value)
        drawn.append(
            f'<path d="M{frame.x} {y:.1f}h{frame.width}" stroke="#e9ebed" stroke-width="1"/>'
        )
        drawn.append(text(frame.x - 6, y + 4, compact(value), colour=FAINT, anchor="end", size=10))
    for at, minute in enumerate(MINUTES):
        if minute % 120 == 0:
            hour = f"{FIRST_HOUR + minute // 60:02d}:00"
            x = frame.across(at)
            below = frame.y + frame.height + 15
            drawn.append(text(x, below, hour, colour=FAINT, anchor="middle", size=10))
    drawn += [frame.path(line) for line in lines]
    for limit in limits:
        y = frame.up(limit["value"])
        drawn.append(
            f'<path d="M{frame.x} {y:.1f}h{frame.width}" stroke="{limit["color"]}" '
            f'stroke-width="1.5" stroke-dasharray="6 3"/>'
        )
        words = f"{limit['label']}  {compact(limit['value'])}"
        halo = ' paint-order="stroke" stroke="white" stroke-width="3"'
        drawn.append(text(frame.x + 6, y - 4, words, colour=limit["color"], size=10, extra=halo))
    top = frame.y + frame.height + 34
    for x, row, line in entries:
        y = top + 14 * row
        drawn.append(f'<circle cx="{x + 14:.0f}" cy="{y - 4:.0f}" r="4" fill="{line.colour}"/>')
        drawn.append(text(x + 22, y, line.label, size=10))
    return drawn


def _legend(lines: list[Line], width: float) -> tuple[list[tuple[float, int, Line]], int]:
    """Where each entry stands, and how many rows there are."""
    placed, x, row = [], 0.0, 0
    for line in lines:
        wide = 34 + 5.6 * len(line.label)
        if x and x + wide > width:
            x, row = 0.0, row + 1
        placed.append((x, row, line))
        x += wide
    return placed, row + 1


def numbers_now(properties: dict[str, Any], numbers: Sample, width: float) -> list[str]:
    """Single values, each over its sparkline."""
    lines = lines_of(properties["metrics"], numbers)
    wide = (width - 28) / len(lines)
    drawn = []
    for at, line in enumerate(lines):
        x = 14 + at * wide
        known = [p for p in line.points if p is not None]
        shown = "--" if line.last is None else compact(line.last)
        drawn.append(text(x, 64, line.label, size=12, colour=FAINT))
        drawn.append(text(x, 96, shown, size=26, bold=True))
        low, high = min(known), max(known)
        frame = Frame(
            x=x, y=112, width=wide - 24, height=44, low=low, high=high if high > low else low + 1
        )
        drawn.append(frame.path(line, width=1.2))
    return drawn


def alarm_states(
    properties: dict[str, Any], alarms: Mapping[str, Any], numbers: Sample, width: float
) -> list[str]:
    """A tile for each alarm, five in a row."""
    wide, drawn = (width - 28) / 5, []
    for at, logical_id in enumerate(properties["alarms"]):
        x, y = 14 + at % 5 * wide, 42 + at // 5 * 62
        state = alarm_state(alarms[logical_id], numbers)
        drawn.append(box(x, y, wide - 10, 54, fill="white", edge=STATES[state]))
        drawn.append(box(x, y, 6, 54, fill=STATES[state]))
        name = re.sub(r"^.*Monitoring|[0-9A-F]{8}$", "", logical_id)
        drawn.append(text(x + 18, y + 23, name, size=13, bold=True))
        drawn.append(text(x + 18, y + 42, state, size=12, colour=STATES[state], bold=True))
    return drawn


def events(numbers: Sample, job: str, width: float) -> list[str]:
    """The newest rows of the log query."""
    drawn = [box(14, 38, width - 28, 26, fill="#fafafa", edge=EDGE)]
    columns = (24, 190, 520)
    for x, name in zip(columns, ("@timestamp", "@logStream", "@message"), strict=True):
        drawn.append(text(x, 56, name, bold=True))
    for row, (minute, attempt, line) in enumerate(numbers.events):
        host = [name for name in numbers.hosts if name.startswith(job)][attempt * INSTANCES]
        time = f"2027-01-15 {FIRST_HOUR + minute // 60:02d}:{minute % 60:02d}:07"
        y = 86 + 32 * row
        for x, words in zip(columns, (time, host, line), strict=True):
            drawn.append(text(x, y, words))
        drawn.append(f'<path d="M14 {y + 11}h{width - 28:.0f}" stroke="#eaeded"/>')
    return drawn


def markdown(source: str, width: float) -> list[str]:
    """The heading and paragraphs of a text widget, with what is bold."""
    drawn, y = [], 34
    for paragraph in source.split("\n"):
        if paragraph.startswith("## "):
            drawn.append(text(14, y, paragraph[3:], size=18, bold=True))
            y += 28
            continue
        for line in textwrap.wrap(paragraph, int(width / 6.4)):
            parts = re.split(r"\*\*(.+?)\*\*", line)
            spans = "".join(
                f'<tspan font-weight="700">{escape(part)}</tspan>' if at % 2 else escape(part)
                for at, part in enumerate(parts)
            )
            drawn.append(f'<text x="14" y="{y}" font-size="13" fill="{INK}">{spans}</text>')
            y += 22
    return drawn


def draw(body: dict[str, Any], alarms: Mapping[str, Any], numbers: Sample, *, job: str) -> str:
    """The whole dashboard as SVG."""
    widgets = body["widgets"]
    wide = max(w["x"] + w["width"] for w in widgets) * COLUMN + 2 * GAP
    high = max(w["y"] + w["height"] for w in widgets) * ROW + 2 * GAP
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" '
        f'height="{high}" font-family="{FONT}" role="img">',
        f"<title>Dashboard of {escape(job)}, sample data</title>",
        f'<rect width="{wide}" height="{high}" fill="{PAGE}"/>',
    ]
    for widget in widgets:
        width, height = widget["width"] * COLUMN - 2 * GAP, widget["height"] * ROW - 2 * GAP
        x, y = widget["x"] * COLUMN + 2 * GAP, widget["y"] * ROW + 2 * GAP
        properties = widget["properties"]
        drawn.append(f'<g transform="translate({x} {y})">')
        drawn.append(box(0, 0, width, height, fill="white", edge=EDGE))
        drawn.append(text(14, 25, properties.get("title", ""), size=14, bold=True))
        match widget["type"], properties.get("view"):
            case "text", _:
                drawn += markdown(properties["markdown"], width)
            case "alarm", _:
                drawn += alarm_states(properties, alarms, numbers, width)
            case "metric", "singleValue":
                drawn += numbers_now(properties, numbers, width)
            case "metric", "timeSeries":
                drawn += graph(properties, numbers, width, height)
            case "log", _:
                drawn += events(numbers, job, width)
            case kind, view:
                raise ValueError(f"a widget of type {kind} and view {view} is not drawn")
        drawn.append("</g>")
    return "\n".join([*drawn, "</svg>", ""])


def picture() -> tuple[str, dict[str, Any]]:
    """The SVG, and the body that it shows."""
    template, job = synthesised()
    body = body_of(template)
    found = template.find_resources("AWS::CloudWatch::Alarm")
    alarms = {name: resource["Properties"] for name, resource in found.items()}
    name = job.definition.job
    numbers = sample(
        job.plan, job=name, instances=INSTANCES, batch_tokens=BATCH_TOKENS, hourly_usd=HOURLY_USD
    )
    return draw(body, alarms, numbers, job=name), body


if __name__ == "__main__":
    PICTURE.write_text(picture()[0], encoding="utf-8")
