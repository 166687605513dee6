"""A dashboard's body as CloudWatch reads it: lines, metric math and states of alarms."""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk.assertions import Template

from docs.dashboard_sample import MINUTES, Points, Sample

PALETTE: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2")
"""CloudWatch's own, for lines without a colour."""


def body_of(template: Template) -> dict[str, Any]:
    """The template's only dashboard; alarms by their logical ids."""
    (dashboard,) = template.find_resources("AWS::CloudWatch::Dashboard").values()
    text = dashboard["Properties"]["DashboardBody"]
    parts = text["Fn::Join"][1] if isinstance(text, dict) else [text]
    body = json.loads("".join(p if isinstance(p, str) else _name(p) for p in parts))
    assert isinstance(body, dict)
    return body


def _name(reference: dict[str, Any]) -> str:
    """The logical id that an intrinsic function names."""
    (value,) = reference.values()
    return str(value[0] if isinstance(value, list) else value)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a widget with its sample."""

    label: str
    colour: str
    points: Points

    @property
    def last(self) -> float | None:
        """The newest value."""
        return next((p for p in reversed(self.points) if p is not None), None)


def lines_of(rows: list[list[Any]], numbers: Sample) -> list[Line]:
    """The visible lines of a widget's ``metrics``."""
    options = [row[-1] if isinstance(row[-1], dict) else {} for row in rows]
    by_id = {
        option["id"]: numbers.metrics[row[1]]
        for row, option in zip(rows, options, strict=True)
        if "id" in option
    }
    found: list[Line] = []
    for row, option in zip(rows, options, strict=True):
        if option.get("visible", True) is False:
            continue
        expression = option.get("expression", "")
        if expression.startswith("SEARCH("):
            found += [
                Line(label=host, colour=PALETTE[at % len(PALETTE)], points=points)
                for at, (host, points) in enumerate(numbers.hosts.items())
            ]
            continue
        points = computed(expression, by_id) if expression else numbers.metrics[row[1]]
        found.append(Line(label=option["label"], colour=option["color"], points=points))
    return found


_OPERATORS: Final = {ast.Mult: operator.mul, ast.Div: operator.truediv}


def computed(expression: str, series: Mapping[str, Points]) -> Points:
    """Metric math of products and quotients; ValueError for anything else."""
    tree = ast.parse(expression, mode="eval").body
    return [_value(tree, series, at) for at in range(len(MINUTES))]


def _value(node: ast.expr, series: Mapping[str, Points], at: int) -> float | None:
    match node:
        case ast.Name(id=name):
            return series[name][at]
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            one, other = _value(left, series, at), _value(right, series, at)
            if one is None or other is None:
                return None
            return float(_OPERATORS[type(op)](one, other))
    raise ValueError(f"this metric math is not drawn: {ast.unparse(node)}")


def alarm_state(properties: dict[str, Any], numbers: Sample) -> str:
    """From the alarm's own threshold, and missing data as it says: not breaching."""
    if "MetricName" in properties:
        points = numbers.metrics.get(properties["MetricName"], [None] * len(MINUTES))
    else:
        parts = properties["Metrics"]
        series = {
            part["Id"]: numbers.metrics[part["MetricStat"]["Metric"]["MetricName"]]
            for part in parts
            if "MetricStat" in part
        }
        (expression,) = (part["Expression"] for part in parts if "Expression" in part)
        points = computed(expression, series)
    limit = properties["Threshold"]
    below = properties["ComparisonOperator"] == "LessThanThreshold"
    newest = points[-int(properties["EvaluationPeriods"]) :]
    wrong = [p is not None and (p < limit if below else p >= limit) for p in newest]
    return "ALARM" if all(wrong) else "OK"
