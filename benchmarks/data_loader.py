"""Whether reading data keeps up with 8 B200, and how long training waits for it.

``python -m benchmarks.data_loader`` from the repository's root. Three things, each with its aim:

* One rank's stream alone against one GPU: tokens a second delivered, over those predicted to be
  needed. The need is the planner's prediction for the fastest preset; no B200 was ever measured.
* Eight streams at once on this machine's CPUs against an instance of eight GPUs. The instance has
  192 virtual CPUs, so a machine with fewer shows less than it would.
* A training run of a small model on CPU: its own metric of data wait, as a share of step time,
  which is to stay under 1 %.

Shards lie in the page cache: the speed of FSx or a disk is not part of it.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.measure import arguments, machine, report
from benchmarks.training_text import container, one_rank, small_spec, text_tokens, write_dataset
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan
from trainer.context_parallel import positions
from trainer.data import BatchPlan, SequenceReader, TrainingStream
from trainer.manifest import Manifest, Shard, Source, Tokenizer
from trainer.rank_state import RankReporter
from trainer.run import train
from trainer.signals import StopFlag

RANKS: Final = 8
"""GPUs of a P6-B200 instance, each with a stream of its own."""
FASTEST: Final = "llama-3.2-1b"
"""The preset that needs the most tokens a second."""
TOKENS: Final = 16_000_000
"""Of the whole dataset: 64 MB, so that it stays in memory."""
TOKENS_PER_STEP: Final = 1 << 21
"""Of the global batch, over all ranks."""
STEPS: Final = 4
TRAIN_STEPS: Final = 60
SKIPPED: Final = 20
"""First steps of the training run, in which torch allocates and warms up."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of dataset and sequence."""

    name: str
    length: int
    sources: int = 1
    masked: bool = False
    context_parallel: int = 1
    """Ranks that share a sequence: each reads it whole and keeps its part."""


CASES: Final = (
    Case(name="8K", length=8192),
    Case(name="8K, loss mask", length=8192, masked=True),
    Case(name="8K, mixture of 4", length=8192, sources=4),
    Case(name="128K, context parallel 8", length=131_072, context_parallel=8),
)


def write_shards(folder: Path, vocab_size: int) -> None:
    """Four sources of random tokens, each with a mask that some manifests do not mention."""
    random = np.random.default_rng(0)
    count = TOKENS // 4
    for source in range(4):
        place = folder / str(source)
        place.mkdir()
        random.integers(vocab_size, size=count, dtype="<u4").tofile(place / "train.bin")
        random.integers(2, size=count, dtype="u1").tofile(place / "train.mask")


def open_reader(folder: Path, case: Case, vocab_size: int) -> SequenceReader:
    """The files as one dataset or as a mixture; checksums are checked elsewhere, once a run."""
    shards = tuple(
        Shard(
            file=f"{source}/train.bin",
            tokens=TOKENS // 4,
            sha256="",
            mask_sha256="" if case.masked else None,
        )
        for source in range(4)
    )
    sources = [Source(folder=str(n), weight=n + 1.0, manifest_sha256="") for n in range(4)]
    manifest = Manifest(
        dtype="uint32",
        tokenizer=Tokenizer(file="", vocab_size=vocab_size, end_of_text_id=0, sha256=""),
        splits={"train": shards},
        sources=tuple(sources) if case.sources > 1 else (),
    )
    reader = SequenceReader(
        folder, manifest, "train", sequence_length=case.length, vocab_size=vocab_size
    )
    if case.context_parallel > 1:
        reader.positions = positions(
            case.length, gather=1, gather_rank=0, ulysses=case.context_parallel, ulysses_rank=0
        )
    return reader


def stream_steps(rank: int, *, folder: Path, case: Case, vocab_size: int) -> float:
    """Seconds in which one rank's stream delivers `STEPS` steps, from nothing."""
    data_ranks = RANKS // case.context_parallel
    plan = BatchPlan.make(
        global_sequences=TOKENS_PER_STEP // case.length, micro_batch_size=1, ranks=data_ranks
    )
    reader = open_reader(folder, case, vocab_size)
    started = time.perf_counter()
    stream = TrainingStream(reader, plan, rank=rank % data_ranks, seed=1, consumed=0, pin=False)
    for _ in range(STEPS):
        stream.next_step()
    seconds = time.perf_counter() - started
    stream.close()
    return seconds


def measure_streams(folder: Path, case: Case, processes: Pool, *, runs: int) -> dict[str, float]:
    """Tokens a second of one GPU and of an instance: delivered, needed, and their ratios."""
    shape = ModelShape.preset(FASTEST)
    need = make_plan(model=shape, sequence_length=case.length).throughput.tokens_per_second_per_gpu
    run = partial(stream_steps, folder=folder, case=case, vocab_size=shape.vocab_size)
    share = STEPS * TOKENS_PER_STEP / RANKS
    alone = share / min(run(0) for _ in range(runs))
    # The slowest rank holds up all the others.
    slowest = min(max(processes.map(run, range(RANKS), chunksize=1)) for _ in range(runs))
    together = RANKS * share / slowest
    return {
        "needed_per_gpu_predicted": round(need),
        "one_stream": round(alone),
        "one_stream_over_need": round(alone / need, 1),
        "eight_streams": round(together),
        "eight_streams_over_need": round(together / (RANKS * need), 1),
    }


def training_wait(root: Path) -> dict[str, float]:
    """Data wait of a training run on this CPU, from the metrics that the trainer prints."""
    write_dataset(root / "dataset", text_tokens())
    spec = small_spec(steps=TRAIN_STEPS, recipe={"precision": "fp32"}, log_interval_steps=10)
    ranks = RankReporter(rank=0, folder=None)
    where = container(root / "run", dataset=root / "dataset")
    with (
        one_rank(root / "store") as world,
        contextlib.redirect_stdout(io.StringIO()) as printed,
    ):
        train(spec, where, world, stop=StopFlag(ranks), ranks=ranks)
    records: Sequence[dict[str, Any]] = [json.loads(x) for x in printed.getvalue().splitlines()]
    lines = [r for r in records if "data_wait_seconds" in r and r["step"] > SKIPPED]
    waited = sum(line["data_wait_seconds"] for line in lines)
    step = sum(line["step_seconds"] for line in lines)
    return {
        "step_milliseconds": round(1e3 * step / len(lines), 2),
        "data_wait_microseconds": round(1e6 * waited / len(lines), 1),
        "data_wait_percent": round(100 * waited / step, 4),
    }


def main() -> None:
    """Measure, print, and write with ``--json``."""
    options = arguments(__doc__.partition("\n")[0], runs=3).parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        shards = root / "shards"
        shards.mkdir()
        write_shards(shards, ModelShape.preset(FASTEST).vocab_size)
        with multiprocessing.get_context("spawn").Pool(RANKS) as processes:
            for case in CASES:
                row = measure_streams(shards, case, processes, runs=options.runs)
                figures[case.name] = row
                print(
                    f"{case.name:26} {row['one_stream']:>12,} tokens/s a stream, "
                    f"{row['one_stream_over_need']:6.1f} x one B200's need (predicted "
                    f"{row['needed_per_gpu_predicted']:,}); eight at once "
                    f"{row['eight_streams_over_need']:6.1f} x eight B200's"
                )
        wait = figures["training on CPU"] = training_wait(root)
        print(
            f"{'training on CPU':26} waits {wait['data_wait_microseconds']} us of a step of "
            f"{wait['step_milliseconds']} ms: {wait['data_wait_percent']} %"
        )
    report("data_loader", figures, machine("torch", "numpy"), file=options.json)


if __name__ == "__main__":
    main()
