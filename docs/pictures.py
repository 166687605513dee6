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
from cdk_blackwell.cli.watch.frame import Frame
from cdk_blackwell.cli.watch.screen import panel
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import Plan, make_plan

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


def sample_frame(plan: Plan) -> Frame:
    """What ``watch`` would show if a run went as its plan predicts; no run did."""
    steps = -(-plan.train_tokens // plan.recipe.global_batch_tokens)
    speed = plan.throughput.tokens_per_second_per_gpu * plan.gpus
    return Frame(
        time="2027-01-16T08:00:00+00:00",
        run_id="2027-01-15-a",
        state="running",
        attempt=2,
        maximum_attempts=3,
        job_name="pretrain-0a1b2c3d-2027-01-15-a-2",
        phase="Training",
        step=steps // 4,
        steps=steps,
        metrics={
            "loss": 2.4137,
            "validation_loss": 2.4309,
            "tokens_per_second": speed,
            "mfu": 100 * plan.throughput.mfu,
            "memory_allocated_gib": plan.memory.allocated_gib,
            "memory_reserved_gib": plan.memory.reserved_gib,
            "data_wait_seconds": 0.004,
        },
        checkpoint_step=steps // 4 - 40,
        checkpoint_age_seconds=640,
        eta_seconds=(steps - steps // 4) * plan.recipe.global_batch_tokens / speed,
        spend_usd=None,
        ceiling_usd=None,
        last_event="",
        ended=False,
        message="",
    )


def main() -> None:
    """The plan of planning.md, below the command that prints it, and all charts."""
    plan = make_plan(**ARGUMENTS)
    console = Console(record=True, width=WIDTH, highlight=False, force_terminal=True, quiet=False)
    console.print(f"$ {COMMAND}", style="dim")
    print_plan(console, plan)
    console.save_svg(str(FOLDER / "plan.svg"), title="cdk-blackwell plan")
    screen = Console(record=True, width=WIDTH, highlight=False, force_terminal=True)
    screen.print(panel(sample_frame(plan)))
    screen.save_svg(str(FOLDER / "watch.svg"), title="cdk-blackwell watch (sample values)")
    charts = {"plan-chart": ARGUMENTS} | {f"chart-{tier}": each for tier, each in PER_TIER.items()}
    for name, arguments in charts.items():
        picture = draw(chart_data(make_plan(**arguments), arguments))
        save_chart(picture, FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main()
