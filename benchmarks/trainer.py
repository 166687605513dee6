"""Speed of the trainer beside other ways to train the same model, on this machine, in one run.

``python -m benchmarks.trainer`` trains a Llama of a few million parameters in fp32 on CPU, with
equal batches: this trainer with all it does (sharding, checkpoints, metrics, validation data, stop
requests), a plain loop over its own model, a plain loop over transformers' LlamaForCausalLM and,
where the package accelerate is installed, transformers' Trainer. Rounds alternate, so that a busy
machine disturbs all alike. Aims: at least 0.97 of the plain loop over the same model, and under 2 %
of the time blocked by metrics, checkpoints and data. It says nothing about GPUs.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch.nn.functional import cross_entropy

from benchmarks.measure import arguments, machine, report
from benchmarks.training_text import (
    container,
    one_rank,
    small_spec,
    text_tokens,
    write_dataset,
)
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.model import Decoder, initialise
from trainer.optimizer import make_optimizer
from trainer.parallel import World
from trainer.rank_state import RankReporter
from trainer.run import train
from trainer.signals import StopFlag

STEPS: Final = 24
WARM_UP: Final = 4
LOG_INTERVAL: Final = 4
CHECKPOINT_SECONDS: Final = 5.0
"""Far more often than any run would, so that what it costs is seen."""

Batches = torch.Tensor
"""Token ids, ``(steps, sequences, sequence length + 1)``."""


def run_spec() -> RunSpec:
    """The model and the batch of all contestants."""
    return small_spec(
        steps=STEPS,
        recipe={"precision": "fp32"},
        hidden_size=256,
        sequence_length=128,
        log_interval_steps=LOG_INTERVAL,
        checkpoint_seconds=CHECKPOINT_SECONDS,
    )


def batches_of(spec: RunSpec) -> Batches:
    """The text in order."""
    rows, length = spec.global_batch_sequences, spec.recipe.sequence_length + 1
    tokens = text_tokens()[: STEPS * rows * length].astype("int64")
    return torch.from_numpy(tokens).view(STEPS, rows, length)


def this_trainer(spec: RunSpec, world: World, root: Path) -> dict[str, float]:
    """Seconds per step after the warm-up, and shares of that time in which training stood still."""
    ranks = RankReporter(rank=0, folder=None)
    where = container(root, dataset=root.parent / "dataset")
    with contextlib.redirect_stdout(Stamped()) as printed:
        train(spec, where, world, stop=StopFlag(ranks), ranks=ranks)
    lines = [(at, r) for at, r in printed.records() if r.get("cdk_blackwell") == "metrics"]
    steps = [(at, r) for at, r in lines if "step_seconds" in r]
    (began, first), (ended, last) = steps[0], steps[-1]
    assert first["step"] == WARM_UP
    assert last["step"] == STEPS
    wall, rest = ended - began, steps[1:]
    data = sum(r["data_wait_seconds"] * LOG_INTERVAL for _, r in rest)
    blocked = sum(
        r["checkpoint_blocked_seconds"]
        for at, r in lines
        if "checkpoint_blocked_seconds" in r and began < at < ended
    )
    stepping = sum(r["step_seconds"] * LOG_INTERVAL for _, r in rest)
    return {
        "seconds": wall / (STEPS - WARM_UP),
        "data_share": data / wall,
        "checkpoint_share": blocked / wall,
        # What is neither a step nor a checkpoint: metrics lines and all between.
        "metrics_share": max(0.0, wall - stepping - blocked) / wall,
    }


class Stamped(io.StringIO):
    """Standard output that knows when each line came."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        """Keep it with the time."""
        self._lines.append((time.perf_counter(), text))
        return len(text)

    def records(self) -> list[tuple[float, dict[str, Any]]]:
        """Each JSON line."""
        return [(at, json.loads(text)) for at, text in self._lines if text.startswith("{")]


def timed_loop(step: Callable[[torch.Tensor], None], batches: Batches) -> float:
    """Seconds per step after the warm-up."""
    began = 0.0
    for number, batch in enumerate(batches):
        if number == WARM_UP:
            began = time.perf_counter()
        step(batch)
    return (time.perf_counter() - began) / (STEPS - WARM_UP)


def plain_loop(spec: RunSpec, batches: Batches) -> float:
    """The same model, loss, clipping and fused AdamW, with nothing around them."""
    model = Decoder(spec.model, loss_chunks=spec.recipe.loss_chunks)
    initialise(model, seed=spec.recipe.seed)
    optimizer = make_optimizer(model, spec.recipe.optimizer)

    def step(batch: torch.Tensor) -> None:
        loss = model(batch[:, :-1], batch[:, 1:]) / spec.recipe.global_batch_tokens
        loss.backward()
        finish(model, optimizer)
        loss.item()

    return timed_loop(step, batches)


def llama(spec: RunSpec) -> Any:
    """Transformers' class of the same shape."""
    shape = spec.model
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=shape.vocab_size,
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.num_hidden_layers,
            num_attention_heads=shape.num_attention_heads,
            num_key_value_heads=shape.num_key_value_heads,
            head_dim=shape.head_dim,
            max_position_embeddings=shape.max_position_embeddings,
            tie_word_embeddings=False,
            use_cache=False,
        )
    )


def transformers_loop(spec: RunSpec, batches: Batches) -> float:
    """A plain loop over transformers' model."""
    model = llama(spec)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step(batch: torch.Tensor) -> None:
        logits = model(batch[:, :-1]).logits
        loss: Any = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        finish(model, optimizer)
        loss.item()

    return timed_loop(step, batches)


def finish(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Clip and step."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


class Clock(transformers.TrainerCallback):  # type: ignore[misc]
    """When transformers' Trainer ended each step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note it."""
        self.ends.append(time.perf_counter())


def transformers_trainer(spec: RunSpec, batches: Batches, root: Path) -> float:
    """Its defaults, but for batch, logging and checkpoints."""
    rows = batches.flatten(0, 1)[:, :-1]
    examples = [{"input_ids": row, "labels": row} for row in rows]
    clock = Clock()
    settings = transformers.TrainingArguments(
        output_dir=str(root),
        per_device_train_batch_size=spec.global_batch_sequences,
        max_steps=STEPS,
        logging_steps=LOG_INTERVAL,
        save_strategy="no",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        transformers.Trainer(
            model=llama(spec), args=settings, train_dataset=examples, callbacks=[clock]
        ).train()
    return (clock.ends[-1] - clock.ends[WARM_UP - 1]) / (STEPS - WARM_UP)


def main() -> None:
    """Alternate, compare, print and write."""
    options = arguments(str(__doc__).splitlines()[0], runs=3).parse_args()
    torch.set_num_threads(1)
    spec = run_spec()
    batches = batches_of(spec)
    rounds: list[dict[str, float]] = []
    ours: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_dataset(root / "dataset", text_tokens())
        with one_rank(root / "store") as world:
            for number in range(options.runs):
                ours.append(this_trainer(spec, world, root / f"run-{number}"))
                measured = {
                    "this trainer": ours[-1]["seconds"],
                    "plain loop, same model": plain_loop(spec, batches),
                    "plain loop, transformers model": transformers_loop(spec, batches),
                }
                if find_spec("accelerate"):
                    measured["transformers Trainer"] = transformers_trainer(
                        spec, batches, root / "hf"
                    )
                rounds.append(measured)
    if not find_spec("accelerate"):
        print("transformers Trainer was left out: it needs the package accelerate")
    fastest = {name: min(each[name] for each in rounds) for name in rounds[0]}
    mine = fastest["this trainer"]
    for name, seconds in fastest.items():
        print(f"{name:32s} {1e3 * seconds:7.1f} ms a step, this trainer {seconds / mine:5.2f} x")
    best = min(ours, key=lambda each: each["seconds"])
    shares = {name: value for name, value in best.items() if name.endswith("_share")}
    for name, share in shares.items():
        print(f"{name:32s} {share:7.2%}")
    figures = {
        "parameters": spec.model.parameter_count,
        "tokens_per_step": spec.recipe.global_batch_tokens,
        "fastest_step_ms": {name: round(1e3 * value, 2) for name, value in fastest.items()},
        "speed_of_this_trainer_over": {
            name: round(value / mine, 4) for name, value in fastest.items()
        },
        "blocked": {name: round(value, 5) for name, value in shares.items()},
        "rounds_ms": [{k: round(1e3 * v, 2) for k, v in each.items()} for each in rounds],
    }
    report("trainer", figures, machine("torch", "transformers"), file=options.json)


if __name__ == "__main__":
    main()
