"""Speed of the trainer beside other ways to train the same model, on this machine, in one run.

``python -m benchmarks.trainer`` trains a Llama of a few million parameters in fp32 on CPU, on one
rank or several, with equal batches of several micro-batches a step, as recipes have them: this
trainer with all it does (sharding, metrics, data, stop requests; checkpoints at an interval that no
benchmark reaches, and in a second line every few seconds), plain loops over its own model, over an
independent one of the kind of nanoGPT's and over transformers' LlamaForCausalLM, all in torch's
DistributedDataParallel if there are several ranks, one over its own model in ``fully_shard``, and,
where the package accelerate is installed, transformers' Trainer.

Rounds alternate, so that a busy machine disturbs all alike; the fastest two steps in a row tell
what the work costs, medians how calm it was. Aims: at least 0.97 of the plain loop over the same
model, and under 2 % of the time blocked by metrics, checkpoints and data. It says nothing about
GPUs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import statistics
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch.multiprocessing.spawn import spawn

from benchmarks.measure import arguments, machine, report
from benchmarks.peers import hugging_face, loops
from benchmarks.peers.clock import INTERVAL, STEPS, Clocks, Speed, clocks, speed
from benchmarks.training_text import container, small_spec, text_tokens, write_dataset
from cdk_blackwell.planning.run_spec import Layout, RunSpec
from trainer.parallel import World, process_group
from trainer.rank_state import RankReporter
from trainer.run import train
from trainer.signals import StopFlag

MICRO_BATCHES: Final = 4
SEQUENCES: Final = 4
"""Of one micro-batch of one rank."""
SEQUENCE_LENGTH: Final = 512
CHECKPOINT_SECONDS: Final = 3.0
"""Far more often than any run would, so that what it costs is seen."""
OURS: Final = "this trainer"
SAVING: Final = "this trainer, often saving"


def run_spec(ranks: int) -> RunSpec:
    """The model, the batch and the layout: weights and gradients are exchanged once a step."""
    spec = small_spec(
        steps=STEPS,
        recipe={"precision": "fp32", "micro_batch_size": SEQUENCES},
        hidden_size=256,
        sequence_length=SEQUENCE_LENGTH,
        sequences=SEQUENCES * MICRO_BATCHES * ranks,
        log_interval_steps=INTERVAL,
    )
    return replace(
        spec,
        layout=Layout(
            shard_gpus=ranks,
            replicas=1,
            context_parallel=1,
            tensor_parallel=1,
            reshard_after_forward=False,
            gradient_sync="step",
        ),
    )


def batches_of(spec: RunSpec, rank: int) -> torch.Tensor:
    """Token ids of a rank, ``(steps, micro-batches, sequences, sequence length + 1)``."""
    shape = (STEPS, MICRO_BATCHES, SEQUENCES, spec.recipe.sequence_length + 1)
    size = torch.Size(shape).numel()
    tokens = text_tokens()[rank * size : (rank + 1) * size]
    return torch.from_numpy(tokens.astype("int64")).view(shape)


def this_trainer(spec: RunSpec, world: World, root: Path) -> Speed:
    """All of it, between the metrics line of the warm-up's last step and that of the last step.

    Only rank 0 prints metrics, so only its answer counts.
    """
    ranks = RankReporter(rank=world.rank, folder=None)
    where = container(root, dataset=root.parent / "dataset") if world.is_first else None
    where = world.from_first(where)
    assert where is not None
    with contextlib.redirect_stdout(Stamped()) as printed:
        train(spec, where, world, stop=StopFlag(ranks), ranks=ranks)
    lines = [(at, r) for at, r in printed.records() if r.get("cdk_blackwell") == "metrics"]
    steps = [(at, r) for at, r in lines if "step_seconds" in r]
    if not steps:
        return Speed(wall=(), cpu=())
    assert [r["step"] for _, r in steps] == list(range(INTERVAL, STEPS + 1, INTERVAL))
    ends, measured = [at for at, _ in steps], [r for _, r in steps[1:]]
    began, ended = ends[0], ends[-1]
    wall = ended[0] - began[0]
    blocked = sum(
        r["checkpoint_blocked_seconds"]
        for at, r in lines
        if "checkpoint_blocked_seconds" in r and began < at < ended
    )
    data = sum(r["data_wait_seconds"] * INTERVAL for r in measured)
    stepping = sum(r["step_seconds"] * INTERVAL for r in measured)
    # What is neither a step nor a checkpoint: metrics lines and all between.
    metrics = max(0.0, wall - stepping - blocked)
    shares = {"data": data / wall, "checkpoints": blocked / wall, "metrics": metrics / wall}
    return speed(ends, shares=shares)


class Stamped(io.StringIO):
    """Printed lines with the time at which each came."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[tuple[Clocks, str]] = []

    def write(self, text: str) -> int:
        """Keep it with the time."""
        self._lines.append((clocks(), text))
        return len(text)

    def records(self) -> list[tuple[Clocks, dict[str, Any]]]:
        """Each JSON line."""
        return [(at, json.loads(text)) for at, text in self._lines if text.startswith("{")]


def one_round(
    spec: RunSpec, batches: torch.Tensor, world: World, root: Path, *, number: int
) -> dict[str, Speed]:
    """Every contestant once; odd rounds go the other way, so that none always comes first."""
    often = replace(spec, checkpoint=replace(spec.checkpoint, interval_seconds=CHECKPOINT_SECONDS))
    contestants: dict[str, Callable[[], Speed]] = {
        OURS: lambda: this_trainer(spec, world, root / f"run-{number}"),
        SAVING: lambda: this_trainer(often, world, root / f"often-{number}"),
        "plain loop, same model": lambda: loops.same_model(spec, world, batches),
        "plain loop, fully_shard": lambda: loops.fully_sharded(spec, world, batches),
        "plain loop, independent": lambda: loops.independent_model(spec, world, batches),
        "plain loop, transformers": lambda: loops.transformers_model(spec, world, batches),
    }
    if find_spec("accelerate"):
        contestants["transformers Trainer"] = lambda: hugging_face.trainer(
            spec, batches, root / "hf"
        )
    found = {}
    for name in sorted(contestants, reverse=number % 2 == 1):
        world.barrier()
        found[name] = contestants[name]()
    return {name: found[name] for name in contestants}


def compare(rounds: Sequence[Mapping[str, Speed]]) -> dict[str, dict[str, float]]:
    """By contestant: its step, and how many times this trainer's it takes."""

    def over_rounds(name: str) -> dict[str, float]:
        speeds = [each[name] for each in rounds]
        return {
            "fastest": min(speed.fastest for speed in speeds),
            "fastest_cpu": min(min(speed.cpu) for speed in speeds),
            "median": statistics.median(speed.median for speed in speeds),
        }

    ours = over_rounds(OURS)
    told = {}
    for name in rounds[0]:
        taken = over_rounds(name)
        told[name] = {f"{key}_step_ms": round(1e3 * value, 1) for key, value in taken.items()}
        told[name] |= {
            f"{key}_over_ours": round(value / ours[key], 3) for key, value in taken.items()
        }
    return told


def measure(rank: int, options: Namespace, root: Path) -> None:
    """One rank's part in all rounds; rank 0 prints and writes what came out."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    spec = run_spec(options.ranks)
    batches = batches_of(spec, rank)
    with process_group(os.environ) as world:
        rounds = [
            one_round(spec, batches, world, root, number=number) for number in range(options.runs)
        ]
    if rank == 0:
        tell(spec, rounds, options)


def tell(spec: RunSpec, rounds: Sequence[Mapping[str, Speed]], options: Namespace) -> None:
    """A line each, and the record."""
    if not find_spec("accelerate"):
        print("transformers Trainer was left out: it needs the package accelerate")
    told = compare(rounds)
    print(f"{'':28s} fastest step  times ours  its CPU time  median")
    for name, row in told.items():
        print(
            f"{name:28s} {row['fastest_step_ms']:9.1f} ms {row['fastest_over_ours']:9.3f} x "
            f"{row['fastest_cpu_over_ours']:11.3f} x {row['median_over_ours']:6.3f}"
        )
    shares = {
        name: statistics.median(each[SAVING].shares[name] for each in rounds)
        for name in rounds[0][SAVING].shares
    }
    print(f"standing still, with a checkpoint every {CHECKPOINT_SECONDS:g} s, for")
    for name, share in shares.items():
        print(f"  {name:12s} {share:7.2%}")
    figures = {
        "ranks": options.ranks,
        "parameters": spec.model.parameter_count,
        "tokens_per_step": spec.recipe.global_batch_tokens,
        "micro_batches_per_step": MICRO_BATCHES,
        "contestants": told,
        f"standing_still_with_a_checkpoint_every_{CHECKPOINT_SECONDS:g}_s": {
            name: round(value, 5) for name, value in shares.items()
        },
        "rounds_ms": [
            {name: [round(1e3 * wall, 1) for wall in one.wall] for name, one in each.items()}
            for each in rounds
        ],
    }
    report("trainer", figures, machine("torch", "transformers"), file=options.json)


def main() -> None:
    """Start the ranks."""
    parser = arguments(str(__doc__).splitlines()[0], runs=3)
    parser.add_argument("--ranks", type=int, choices=(1, 2, 4), default=1, help="(default 1)")
    options = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(options.ranks),
        # As torchrun sets it; accelerate would set as many as there are CPUs, for each rank.
        "OMP_NUM_THREADS": "1",
        "TORCHAO_FORCE_SKIP_LOADING_SO_FILES": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_dataset(root / "dataset", text_tokens())
        spawn(measure, args=(options, root), nprocs=options.ranks)


if __name__ == "__main__":
    main()
