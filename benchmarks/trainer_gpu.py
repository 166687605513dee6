"""The trainer beside a plain loop over its own model, a Llama of 1B parameters on one GPU, bf16.

``python -m benchmarks.trainer_gpu`` alternates both in one run, with equal batches, compiled blocks
and fused AdamW: the trainer with all it does, and a loop with autocast, clipping and nothing else.
Aim: at least 0.97 of the plain loop's speed. Prepared without a GPU: no figure of it exists yet.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from benchmarks.measure import arguments, machine, report
from benchmarks.training_text import container, small_spec, text_tokens, write_dataset
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.compilation import compile_blocks
from trainer.metrics import device_peak_flops, model_flops_utilization
from trainer.model import Decoder, initialise
from trainer.optimizer import make_optimizer
from trainer.parallel import World
from trainer.rank_state import RankReporter
from trainer.run import train
from trainer.sharding import clip_gradients
from trainer.signals import StopFlag

STEPS: Final = 16
WARM_UP: Final = 4
"""Also the steps between two metrics lines."""
LENGTH: Final = 4096
SEQUENCES: Final = 4
ACCUMULATION: Final = 2
AIM: Final = 0.97


def run_spec() -> RunSpec:
    """The model and the batch of both."""
    spec = small_spec(
        steps=STEPS,
        recipe={
            "precision": "bf16",
            "compile": True,
            "micro_batch_size": SEQUENCES,
            "loss_chunks": 8,
        },
        sequence_length=LENGTH,
        sequences=SEQUENCES * ACCUMULATION,
        log_interval_steps=WARM_UP,
    )
    model = ModelShape.preset("llama-3.2-1b")
    optimizer = replace(spec.recipe.optimizer, peak_learning_rate=3e-4)
    return replace(
        spec,
        model=model,
        recipe=replace(spec.recipe, optimizer=optimizer),
        data=replace(spec.data, validation_sequences=4),
    )


def this_trainer(spec: RunSpec, world: World, root: Path) -> float:
    """Seconds per step after the warm-up, by its own metrics lines."""
    ranks = RankReporter(rank=0, folder=None)
    where = container(root, dataset=root.parent / "dataset")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        train(spec, where, world, stop=StopFlag(ranks), ranks=ranks)
    lines = [json.loads(line) for line in printed.getvalue().splitlines()]
    seconds = [line["step_seconds"] for line in lines if "step_seconds" in line]
    rest = seconds[1:]
    return float(sum(rest) / len(rest))


def plain_loop(spec: RunSpec, world: World) -> float:
    """The same model, loss, clipping and optimizer, with nothing around them."""
    model = Decoder(spec.model, loss_chunks=spec.recipe.loss_chunks).to(world.device)
    initialise(model, seed=spec.recipe.seed)
    compile_blocks(model)
    optimizer = make_optimizer(model, spec.recipe.optimizer)
    rows, length = spec.global_batch_sequences, LENGTH + 1
    text = torch.from_numpy(text_tokens()[: STEPS * rows * length].astype("int64"))
    batches = text.view(STEPS, ACCUMULATION, SEQUENCES, length).pin_memory()
    began = 0.0
    for number, batch in enumerate(batches):
        if number == WARM_UP:
            torch.cuda.synchronize()
            began = time.perf_counter()
        for part in batch:
            tokens = part.to(world.device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(tokens[:, :-1], tokens[:, 1:])
            (loss / spec.recipe.global_batch_tokens).backward()
        clip_gradients(model.parameters(), maximum_norm=1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / (STEPS - WARM_UP)


def forget() -> None:
    """Give back what the last contestant held."""
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()


@contextlib.contextmanager
def one_gpu(store: Path) -> Iterator[World]:
    """This process alone with the first GPU; ``store`` is a file that does not exist yet."""
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl", init_method=f"file://{store}", rank=0, world_size=1
    )
    yield World(rank=0, size=1, device=device)
    dist.destroy_process_group()


def main() -> None:
    """Alternate, compare, print and write."""
    options = arguments(str(__doc__).splitlines()[0], runs=2).parse_args()
    if not torch.cuda.is_available():
        print("benchmarks.trainer_gpu was left out: torch finds no NVIDIA GPU")
        return
    spec = run_spec()
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_dataset(root / "dataset", text_tokens())
        with one_gpu(root / "store") as world:
            for number in range(options.runs):
                trainer = this_trainer(spec, world, root / f"run-{number}")
                forget()
                rounds.append({"this trainer": trainer, "plain loop": plain_loop(spec, world)})
                forget()
            peak, name = device_peak_flops(spec, world), torch.cuda.get_device_name(world.device)
    fastest = {key: min(each[key] for each in rounds) for key in rounds[0]}
    speeds = {key: spec.recipe.global_batch_tokens / each for key, each in fastest.items()}
    mfu = {
        key: model_flops_utilization(spec, tokens_per_second=each, ranks=1, peak=peak)
        for key, each in speeds.items()
    }
    for contestant, speed in speeds.items():
        share = mfu[contestant]
        print(
            f"{contestant:14s} {speed:10,.0f} tokens/s"
            + ("" if share is None else f", {share:.1f} % of the dense peak")
        )
    ratio = fastest["plain loop"] / fastest["this trainer"]
    verdict = "reached" if ratio >= AIM else "MISSED"
    print(f"speed over the plain loop's: {ratio:.3f} on {name}; aim {AIM} {verdict}")
    figures: dict[str, Any] = {
        "gpu": name,
        "parameters": spec.model.parameter_count,
        "tokens_per_step": spec.recipe.global_batch_tokens,
        "fastest_step_seconds": fastest,
        "tokens_per_second": speeds,
        "mfu_percent": mfu,
        "speed_over_plain_loop": ratio,
        "aim": AIM,
        "aim_reached": ratio >= AIM,
        "rounds_seconds": rounds,
    }
    report("trainer_gpu", figures, machine("torch", "torchao"), file=options.json)


if __name__ == "__main__":
    main()
