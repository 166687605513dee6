"""Draws the pictures of this folder from the real command: ``python docs/pictures.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from cdk_blackwell.cli.plan.charts.data import chart_data
from cdk_blackwell.cli.plan.charts.pictures import draw
from cdk_blackwell.cli.plan.charts.save import save_chart
from cdk_blackwell.cli.plan.screen import print_plan
from cdk_blackwell.cli.plan.section import WIDTH
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan

FOLDER = Path(__file__).parent
ARGUMENTS: dict[str, Any] = {
    "model": ModelShape.preset("llama-3.1-8b"),
    "sequence_length": 32_768,
    "instance_count": 4,
    "train_tokens": 300_000_000_000,
}
PER_TIER: dict[str, dict[str, Any]] = {
    "small": {
        "model": ModelShape.preset("llama-3.2-3b"),
        "sequence_length": 8_192,
        "train_tokens": 60_000_000_000,
    },
    "mid": {
        "model": ModelShape.preset("qwen3-14b"),
        "sequence_length": 8_192,
        "instance_count": 4,
        "train_tokens": 300_000_000_000,
    },
    "large": {
        "model": ModelShape.preset("llama-3-64b"),
        "sequence_length": 32_768,
        "instance_count": 8,
        "train_tokens": 300_000_000_000,
    },
}
"""One chart for each tier, ``chart-<tier>.svg``, in explanation/tiers.md."""
COMMAND = (
    "cdk-blackwell plan --model llama-3.1-8b --sequence-length 32k --nodes 4 --train-tokens 300B"
)


def main() -> None:
    """The plan of planning.md, from the command that stands in its title, and all charts."""
    plan = make_plan(**ARGUMENTS)
    console = Console(record=True, width=WIDTH, highlight=False, force_terminal=True, quiet=False)
    print_plan(console, plan)
    console.save_svg(str(FOLDER / "plan.svg"), title=COMMAND)
    charts = {"plan-chart": ARGUMENTS} | {f"chart-{tier}": each for tier, each in PER_TIER.items()}
    for name, arguments in charts.items():
        picture = draw(chart_data(make_plan(**arguments), arguments))
        save_chart(picture, FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
