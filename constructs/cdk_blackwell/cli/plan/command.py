"""The ``plan`` command: options in, exit code out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cdk_blackwell.cli.plan.options import PlanOptions
from cdk_blackwell.cli.quantities import amount, count, length, money

_MODEL = "Model and data"
_RECIPE = "Recipe: what is left out is chosen"
_LAYOUT = "Layout: what is left out is searched"
_MONEY = "Money"
_OUTPUT = "Output"


def plan(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            rich_help_panel=_MODEL,
            help="Preset (see --list-models) or a Hugging Face config.json.",
        ),
    ] = None,
    sequence_length: Annotated[
        int | None,
        typer.Option(
            "--sequence-length",
            "-s",
            parser=length,
            metavar="TOKENS",
            rich_help_panel=_MODEL,
            help="Tokens per sequence; 32k = 32,768. Left out: 8k, or less for an older model.",
        ),
    ] = None,
    global_batch_tokens: Annotated[
        int | None,
        typer.Option(
            parser=length,
            metavar="TOKENS",
            rich_help_panel=_MODEL,
            help="Tokens per optimizer step over all GPUs; 4M = 4,194,304.",
        ),
    ] = None,
    train_tokens: Annotated[
        int | None,
        typer.Option(
            parser=amount,
            metavar="TOKENS",
            rich_help_panel=_MODEL,
            help="Tokens to train on; 300B = 300,000,000,000.",
        ),
    ] = None,
    tier: Annotated[
        Literal["small", "mid", "large-sharded"] | None,
        typer.Option(rich_help_panel=_MODEL, help="Left out: by the number of parameters."),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            parser=count,
            metavar="N",
            rich_help_panel=_LAYOUT,
            help="Instances of 8 GPUs. Left out: the fewest that the tier allows and that fit.",
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            parser=count, metavar="G", rich_help_panel=_LAYOUT, help="GPUs, in place of --nodes."
        ),
    ] = None,
    shard_gpus: Annotated[
        int | None,
        typer.Option(
            parser=count,
            metavar="F",
            rich_help_panel=_LAYOUT,
            help="GPUs that share one copy of the weights (FSDP; fewer than all is HSDP).",
        ),
    ] = None,
    context_parallel: Annotated[
        int | None,
        typer.Option(
            parser=count,
            metavar="C",
            rich_help_panel=_LAYOUT,
            help="GPUs that share one sequence.",
        ),
    ] = None,
    ulysses: Annotated[
        int | None,
        typer.Option(
            parser=count,
            metavar="U",
            rich_help_panel=_LAYOUT,
            help="Of those, GPUs that exchange heads for tokens; the rest gather keys and values.",
        ),
    ] = None,
    tensor_parallel: Annotated[
        int | None,
        typer.Option(
            parser=count,
            metavar="T",
            rich_help_panel=_LAYOUT,
            help="GPUs that share each matrix.",
        ),
    ] = None,
    reshard: Annotated[
        bool | None,
        typer.Option(
            "--reshard/--keep-weights",
            rich_help_panel=_LAYOUT,
            help="Free gathered weights after use, or keep them for a whole step.",
        ),
    ] = None,
    gradient_sync: Annotated[
        Literal["micro_batch", "step"] | None,
        typer.Option(
            rich_help_panel=_LAYOUT, help="Reduce gradients each micro-batch, or once a step."
        ),
    ] = None,
    precision: Annotated[
        Literal["bf16", "fp32", "fp8", "fp8_rowwise", "mxfp8"] | None,
        typer.Option(rich_help_panel=_RECIPE, help="Of the blocks' matrix products."),
    ] = None,
    micro_batch_size: Annotated[
        int | None,
        typer.Option(
            parser=count,
            metavar="B",
            rich_help_panel=_RECIPE,
            help="Sequences per forward pass of a GPU (or of its context-parallel group).",
        ),
    ] = None,
    activation_checkpointing: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            rich_help_panel=_RECIPE,
            help="none, selective, full or every:K.",
        ),
    ] = None,
    loss_chunks: Annotated[
        int | None,
        typer.Option(
            parser=count,
            metavar="N",
            rich_help_panel=_RECIPE,
            help="Pieces the logits are computed in.",
        ),
    ] = None,
    bf16_edge_blocks: Annotated[
        int | None,
        typer.Option(
            parser=count,
            metavar="N",
            rich_help_panel=_RECIPE,
            help="First and last blocks that keep bf16 where the others compute in 8 bits.",
        ),
    ] = None,
    eager: Annotated[
        bool,
        typer.Option("--eager", rich_help_panel=_RECIPE, help="Plain kernels, no torch.compile."),
    ] = False,
    optimizer: Annotated[
        Literal["fused", "foreach"] | None,
        typer.Option(rich_help_panel=_RECIPE, help="Implementation of AdamW."),
    ] = None,
    hourly_price_usd: Annotated[
        float | None,
        typer.Option(
            parser=money,
            metavar="USD",
            rich_help_panel=_MONEY,
            help="Your price per instance and hour; there is no default.",
        ),
    ] = None,
    max_cost_usd: Annotated[
        float | None,
        typer.Option(
            parser=money,
            metavar="USD",
            rich_help_panel=_MONEY,
            help="Refuse (exit 3) a plan that would cost more.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel=_OUTPUT, help="One JSON object and nothing else."),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", rich_help_panel=_OUTPUT, help="Why: the five decisions, alternatives."
        ),
    ] = False,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            rich_help_panel=_OUTPUT,
            help="Phases, both FLOP conventions, sources, checkpoints and storage.",
        ),
    ] = False,
    chart: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_OUTPUT,
            help="Draw memory against micro-batch, speed and cost against nodes: .png .svg .html.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            rich_help_panel=_OUTPUT,
            help="Run the trainer's own model under PyTorch's memory tracker and compare "
            "(1 to 5 minutes on a CPU; needs torch).",
        ),
    ] = False,
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_OUTPUT,
            help="trial.json of a trial run: its numbers replace the assumed efficiency.",
        ),
    ] = None,
    list_models: Annotated[
        bool, typer.Option("--list-models", rich_help_panel=_OUTPUT, help="Show all presets.")
    ] = False,
) -> None:
    """Predict what fits, how to shard it, how fast it should go and what it costs.

    Nothing is started and no account is needed. Exit codes: 0 done, 2 bad input,
    3 does not fit or refused by a rule (the table, or the JSON, is printed all the same).

    Example: cdk-blackwell plan --model llama-3.1-8b --sequence-length 32k --nodes 4
    """
    from cdk_blackwell.cli.plan.flow import run_plan

    run_plan(
        PlanOptions(
            model=model,
            sequence_length=sequence_length,
            global_batch_tokens=global_batch_tokens,
            train_tokens=train_tokens,
            tier=tier,
            nodes=nodes,
            gpus=gpus,
            shard_gpus=shard_gpus,
            context_parallel=context_parallel,
            ulysses=ulysses,
            tensor_parallel=tensor_parallel,
            reshard=reshard,
            gradient_sync=gradient_sync,
            precision=precision,
            micro_batch_size=micro_batch_size,
            activation_checkpointing=activation_checkpointing,
            loss_chunks=loss_chunks,
            bf16_edge_blocks=bf16_edge_blocks,
            eager=eager,
            optimizer=optimizer,
            hourly_price_usd=hourly_price_usd,
            max_cost_usd=max_cost_usd,
            as_json=as_json,
            explain=explain,
            details=details,
            chart=chart,
            verify=verify,
            measured=measured,
            list_models=list_models,
        )
    )
