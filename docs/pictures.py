"""Draws the pictures of this folder from the real command: ``python docs/pictures.py``."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from cdk_blackwell.cli.plan.charts.data import chart_data
from cdk_blackwell.cli.plan.charts.pictures import draw
from cdk_blackwell.cli.plan.charts.save import save_chart
from cdk_blackwell.cli.plan.screen import print_plan
from cdk_blackwell.cli.plan.section import WIDTH
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan

FOLDER = Path(__file__).parent
ARGUMENTS = {
    "model": ModelShape.preset("llama-3.1-8b"),
    "sequence_length": 32_768,
    "instance_count": 4,
    "train_tokens": 300_000_000_000,
}
COMMAND = (
    "cdk-blackwell plan --model llama-3.1-8b --sequence-length 32k --nodes 4 --train-tokens 300B"
)


def main() -> None:
    """Both pictures, from the command that stands in their title and in planning.md."""
    plan = make_plan(**ARGUMENTS)
    console = Console(record=True, width=WIDTH, highlight=False, force_terminal=True, quiet=False)
    print_plan(console, plan)
    console.save_svg(str(FOLDER / "plan.svg"), title=COMMAND)
    save_chart(draw(chart_data(plan, ARGUMENTS)), FOLDER / "plan-chart.svg")


if __name__ == "__main__":
    main()
