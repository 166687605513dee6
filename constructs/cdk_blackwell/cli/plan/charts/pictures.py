"""``ChartData`` as a Vega-Lite chart.

Colours are Okabe and Ito's (2008), which people with any common colour blindness tell apart; lines
differ in dash and point shape as well.
"""

from __future__ import annotations

import math
from typing import Any, Final

import altair as alt

from cdk_blackwell.cli.plan.charts.rows import ChartData
from cdk_blackwell.cli.plan.words import spaced

INK: Final = "#222222"
_BLUE, _ORANGE, _GREEN, _VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_SKY, _PURPLE, _YELLOW, _GREY = "#56B4E9", "#CC79A7", "#F0E442", "#999999"
PART_COLOURS: Final = (_BLUE, _SKY, _ORANGE, _YELLOW, _PURPLE, _GREEN, _GREY, "#444444")
LINE_COLOURS: Final = (_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY, INK)
LINE_SHAPES: Final = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-left",
)
LINE_DASHES: Final = ((1, 0), (7, 3), (2, 2), (9, 3, 2, 3), (4, 4), (12, 4), (1, 3))
WIDTH: Final = 760
FONT: Final = "Helvetica, Arial, Liberation Sans, sans-serif"


def draw(data: ChartData) -> dict[str, Any]:
    """The whole picture as a Vega-Lite specification."""
    whole = alt.vconcat(_memory(data), alt.hconcat(_speed(data), _cost(data), spacing=50))
    whole = whole.properties(
        title=alt.TitleParams(
            data.title,
            subtitle=data.subtitle,
            anchor="start",
            fontSize=20,
            subtitleFontSize=13,
            subtitleColor="#555555",
            offset=16,
        ),
        # More at the right, where a reader's wider font would run out of the picture.
        padding={"left": 20, "top": 20, "right": 30, "bottom": 20},
        background="white",
    )
    whole = whole.resolve_scale(color="independent", shape="independent", strokeDash="independent")
    whole = whole.configure(font=FONT)
    whole = whole.configure_axis(
        labelFontSize=12,
        titleFontSize=13,
        titleFontWeight="normal",
        labelColor=INK,
        titleColor=INK,
        gridColor="#e6e6e6",
        domainColor="#888888",
        tickColor="#888888",
    )
    whole = whole.configure_legend(
        labelFontSize=12, titleFontSize=13, labelColor=INK, titleLimit=220
    )
    whole = whole.configure_title(fontSize=14, anchor="start", color=INK)
    whole = whole.configure_view(stroke=None)
    specification: dict[str, Any] = whole.to_dict()
    # Vega's own menu would offer an editor on the network.
    specification["usermeta"] = {"embedOptions": {"actions": False}}
    return specification


def _memory(data: ChartData) -> alt.LayerChart | alt.FacetChart:
    parts = list(dict.fromkeys(part for column in data.memory for part in column.parts_gib))
    top = 1.12 * max(data.budget_gib, *(column.height_gib for column in data.memory))
    size = alt.X(
        "micro_batch:O",
        title="micro-batch (sequences per data-parallel rank and pass)",
        sort=[str(column.micro_batch_size) for column in data.memory],
        axis=alt.Axis(labelAngle=0),
    )
    columns = (
        alt.Chart(
            _values(
                {
                    "micro_batch": str(column.micro_batch_size),
                    "part": spaced(part),
                    "order": parts.index(part),
                    "GiB": round(gib, 2),
                }
                for column in data.memory
                for part, gib in column.parts_gib.items()
            )
        )
        .mark_bar(stroke="white", strokeWidth=0.5)
        .encode(
            x=size,
            y=alt.Y("GiB:Q", title="GiB per GPU", scale=alt.Scale(domain=[0, top], nice=False)),
            color=alt.Color(
                "part:N",
                title="upper bound of reserved",
                sort=[spaced(part) for part in reversed(parts)],
                scale=alt.Scale(
                    domain=[spaced(part) for part in reversed(parts)],
                    range=list(reversed(PART_COLOURS[: len(parts)])),
                ),
            ),
            order=alt.Order("order:Q"),
            tooltip=["micro_batch:O", "part:N", "GiB:Q"],
        )
    )
    budget = alt.Chart(_values([{"budget": data.budget_gib}]))
    line = budget.mark_rule(color=_VERMILION, strokeWidth=2, strokeDash=[6, 4]).encode(y="budget:Q")
    label = budget.mark_text(
        text=f"budget {data.budget_gib:.1f} GiB",
        color=_VERMILION,
        align="left",
        baseline="bottom",
        dx=4,
        dy=-4,
        fontSize=12,
        fontWeight="bold",
    ).encode(y="budget:Q", x=alt.value(0))
    chosen = [column for column in data.memory if column.chosen]
    place = alt.Chart(
        _values(
            {"micro_batch": str(column.micro_batch_size), "GiB": column.height_gib}
            for column in chosen
        )
    ).encode(x=size, y="GiB:Q")
    words: dict[str, Any] = {
        "text": "▼ chosen" + "".join(f": {column.height_gib:.1f}" for column in chosen),
        "dy": -10,
        "fontSize": 13,
        "fontWeight": "bold",
    }
    # White behind the words, where the line of the budget runs through them.
    halo = place.mark_text(**words, color="white", stroke="white", strokeWidth=5)
    return alt.layer(columns, line, label, halo, place.mark_text(**words, color=INK)).properties(
        title="Memory by part", width=WIDTH - 220, height=260
    )


def _speed(data: ChartData) -> alt.LayerChart | alt.FacetChart:
    speeds = [point.tokens_per_second for point in data.nodes]
    # Given, since a single point has no range of its own.
    domain = [min(speeds) / 1.5, max(speeds) * 1.5]
    scale = alt.Scale(type="log", nice=False, domain=domain)
    axis = alt.Axis(format="~s", values=_round_values(min(speeds), max(speeds)))
    y = alt.Y("tokens_per_second:Q", title="tokens/s, all GPUs", scale=scale, axis=axis)
    return _against_nodes(data, "tokens_per_second", y, "Predicted speed")


def _cost(data: ChartData) -> alt.LayerChart | alt.FacetChart:
    unit = "USD" if data.priced else "node-hours (no price given)"
    title = "Predicted cost" if data.priced else "Predicted node-hours"
    axis = alt.Axis(format=",~r", tickCount=6)
    # Layouts differ by some percent, which an axis from zero would hide.
    costs = [point.cost for point in data.nodes]
    scale = alt.Scale(domain=[0.8 * min(costs), 1.1 * max(costs)], zero=False)
    y = alt.Y("cost:Q", title=unit, axis=axis, scale=scale)
    return _against_nodes(data, "cost", y, title)


def _against_nodes(
    data: ChartData, field: str, y: alt.Y, title: str
) -> alt.LayerChart | alt.FacetChart:
    layouts = [str(shards) for shards in sorted({point.shard_gpus for point in data.nodes})]
    values = _values(
        {
            "nodes": point.nodes,
            "layout": str(point.shard_gpus),
            "description": point.description,
            "chosen": point.chosen,
            field: point.tokens_per_second if field == "tokens_per_second" else point.cost,
        }
        for point in data.nodes
    )
    count = len(layouts)
    colours = alt.Scale(domain=layouts, range=list(LINE_COLOURS[:count]))
    shapes = alt.Scale(domain=layouts, range=list(LINE_SHAPES[:count]))
    dashes = alt.Scale(domain=layouts, range=[list(dash) for dash in LINE_DASHES[:count]])
    legend = alt.Legend(
        title=["GPUs that share one", "copy of the weights"], symbolSize=90, symbolStrokeWidth=0
    )
    x = alt.X(
        "nodes:Q",
        title="nodes of 8 GPUs",
        scale=alt.Scale(type="log", base=2, nice=False, padding=14),
        axis=alt.Axis(values=sorted({point.nodes for point in data.nodes}), grid=False),
    )
    lines = (
        alt.Chart(values)
        .mark_line(strokeWidth=2)
        .encode(
            x=x,
            y=y,
            color=alt.Color("layout:N", scale=colours, legend=legend),
            strokeDash=alt.StrokeDash("layout:N", scale=dashes, legend=legend),
        )
    )
    points = (
        alt.Chart(values)
        .mark_point(size=70, filled=True, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color("layout:N", scale=colours, legend=legend),
            shape=alt.Shape("layout:N", scale=shapes, legend=legend),
            tooltip=["nodes:Q", "description:N", f"{field}:Q"],
        )
    )
    chosen = alt.Chart(values).transform_filter("datum.chosen")
    ring = chosen.mark_point(size=260, strokeWidth=2, color=INK, filled=False).encode(x=x, y=y)
    counts = [point.nodes for point in data.nodes]
    picked = [point for point in data.nodes if point.chosen]
    # Beside the ring, on the side where there is more room.
    right = any(point.nodes**2 > min(counts) * max(counts) for point in picked)
    label = chosen.mark_text(
        text="chosen" + "".join(f": {getattr(point, field):,.0f}" for point in picked),
        align="right" if right else "left",
        dx=-14 if right else 14,
        dy=16,
        fontSize=12,
        fontWeight="bold",
        color=INK,
    ).encode(x=x, y=y)
    return alt.layer(lines, points, ring, label).properties(title=title, width=270, height=230)


def _round_values(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten from just below ``low`` to just above ``high``."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    return [value for value in values if low / 1.5 <= value <= high * 1.5]


def _values(rows: Any) -> alt.InlineData:
    return alt.InlineData(values=list(rows))
