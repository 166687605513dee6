"""What saving costs the training, and what resuming costs, on this machine, in one run.

``python -m benchmarks.checkpoint`` trains a Llama of a few million parameters on CPU in stretches
of equal steps. Rounds alternate between four of them, so that a busy machine disturbs all alike: no
save, one save by the trainer's checkpointer while training goes on, the same waited for, and one
``torch.save`` of the same state, as a plain loop does it. Of each, the time for which the training
thread stood still is given in steps; and so is the CPU time that the whole stretch took beyond the
one without a save, in multiples of a step's: work that would not disturb a GPU.

Resuming is timed with all its checks (every file's SHA-256) beside ``torch.load`` of that state.
All of it lies in the page cache; the speed of FSx or an NVMe disk is no part of it, nor is a GPU.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.measure import arguments, machine, report
from benchmarks.training_text import one_rank, small_spec, text_tokens
from cdk_blackwell.planning.cost import checkpoint_bytes
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.checkpoint import Checkpointer
from trainer.layout import make_meshes
from trainer.optimizer import make_optimizer
from trainer.parallel import World
from trainer.run import build_model
from trainer.sharding import clip_gradients

STEPS: Final = 10
SAVE_AFTER: Final = 2
"""Early in the stretch, so that writing behind the training ends within it."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Of some steps, in seconds."""

    wall: float
    cpu: float
    """Of all threads; it does not depend on what else the machine does."""
    blocked: float
    """Wall-clock time for which the training thread stood still."""


@dataclass(kw_only=True)
class Bench:
    """One model in training, and a checkpointer for it."""

    spec: RunSpec
    world: World
    folder: Path
    batches: torch.Tensor
    """Token ids, ``(steps, sequences, sequence length + 1)``."""

    def __post_init__(self) -> None:
        meshes = make_meshes(self.spec.layout, kind="cpu", rank=0)
        self.model = build_model(self.spec, meshes, self.world)
        self.optimizer = make_optimizer(self.model, self.spec.recipe.optimizer)
        self.checkpointer = self.fresh()
        self.step = 0

    def fresh(self) -> Checkpointer:
        """One that knows of no checkpoint yet, as after a restart."""
        return Checkpointer(self.folder, self.spec, self.world, dataset_sha256="", warn=refuse)

    def train(self) -> None:
        """One optimizer step."""
        batch = self.batches[self.step % len(self.batches)]
        loss = self.model(batch[:, :-1], batch[:, 1:]) / self.spec.recipe.global_batch_tokens
        loss.backward()
        clip_gradients(self.model.parameters(), maximum_norm=1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1

    def stretch(self, save: Callable[[], None], collect: Callable[[], None]) -> Stretch:
        """`STEPS` steps with ``save`` within; ``collect`` may look after each step."""
        began, cpu, blocked = time.perf_counter(), time.process_time(), 0.0
        for number in range(1, STEPS + 1):
            self.train()
            blocked += seconds_of(collect)
            if number == SAVE_AFTER:
                blocked += seconds_of(save)
        return Stretch(
            wall=time.perf_counter() - began, cpu=time.process_time() - cpu, blocked=blocked
        )

    def begin(self) -> None:
        """Save behind the training."""
        tokens = self.step * self.spec.recipe.global_batch_tokens
        self.checkpointer.begin(self.model, self.optimizer, step=self.step, tokens=tokens)

    def settle_if_done(self) -> None:
        """As the trainer does after each step."""
        if self.checkpointer.done:
            self.checkpointer.settle()

    def save_and_wait(self) -> None:
        """The same, with the training standing still."""
        self.begin()
        self.checkpointer.wait()
        self.checkpointer.settle()

    def state(self) -> dict[str, Any]:
        """What a plain loop saves."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def torch_save(self) -> None:
        """A plain loop's save: one file, and the training stands still."""
        torch.save(self.state(), self.folder / "plain.pt")

    def torch_load(self) -> None:
        """A plain loop's resume."""
        state = torch.load(self.folder / "plain.pt", weights_only=False)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def resume(self) -> None:
        """The trainer's resume, checks and all."""
        found = self.fresh().load_newest(self.model, self.optimizer)
        assert found is not None


def refuse(event: str, **details: Any) -> None:
    """Nothing may go wrong while it is timed."""
    raise RuntimeError(f"{event}: {details}")


def nothing() -> None:
    """Neither saved nor collected."""


def seconds_of(work: Callable[[], None]) -> float:
    """Once."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def one_round(bench: Bench) -> dict[str, float]:
    """In steps without a save: what each save and each resume cost; and the step in seconds."""
    plain = bench.stretch(nothing, nothing)
    saves = {"behind the training": bench.stretch(bench.begin, bench.settle_if_done)}
    if bench.checkpointer.busy:
        raise SystemExit("a save outlasted its stretch; this machine is too busy to measure it")
    assert bench.checkpointer.latest is not None
    written = bench.checkpointer.latest.seconds
    saves["waited for"] = bench.stretch(bench.save_and_wait, nothing)
    saves["torch.save"] = bench.stretch(bench.torch_save, nothing)
    step, cpu = plain.wall / STEPS, plain.cpu / STEPS
    return {
        "step_seconds": step,
        **{f"stood still: {name}": one.blocked / step for name, one in saves.items()},
        **{f"CPU time: {name}": (one.cpu - plain.cpu) / cpu for name, one in saves.items()},
        "until written behind the training": written / step,
        "resume": seconds_of(bench.resume) / step,
        "torch.load": seconds_of(bench.torch_load) / step,
    }


def medians(rounds: Iterable[dict[str, float]]) -> dict[str, float]:
    """By name, over the rounds."""
    rows = list(rounds)
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def main() -> None:
    """Alternate, compare, print and write."""
    options = arguments(str(__doc__).splitlines()[0], runs=3).parse_args()
    torch.set_num_threads(1)
    spec = small_spec(steps=10_000, recipe={"precision": "fp32"}, hidden_size=256)
    rows, length = spec.global_batch_sequences, spec.recipe.sequence_length + 1
    tokens = torch.from_numpy(text_tokens()[: STEPS * rows * length].astype("int64"))
    with tempfile.TemporaryDirectory() as folder, one_rank(Path(folder) / "store") as world:
        kept = Path(folder) / "checkpoints"
        kept.mkdir()
        batches = tokens.view(STEPS, rows, length)
        bench = Bench(spec=spec, world=world, folder=kept, batches=batches)
        one_round(bench)  # warm-up
        rounds = [one_round(bench) for _ in range(options.runs)]
    told = medians(rounds)
    step = told.pop("step_seconds")
    size = checkpoint_bytes(spec.model)
    print(f"{size / 1e6:.0f} MB a checkpoint, {1e3 * step:.1f} ms a step; in steps:")
    for name, value in told.items():
        print(f"{name:36s} {value:7.2f}")
    figures = {
        "checkpoint_bytes": size,
        "step_ms": round(1e3 * step, 2),
        "steps_in_a_stretch": STEPS,
        "in_steps": {name: round(value, 4) for name, value in told.items()},
        "resume_over_torch_load": round(told["resume"] / told["torch.load"], 3),
        "rounds": [{k: round(v, 4) for k, v in each.items()} for each in rounds],
    }
    report("checkpoint", figures, machine("torch"), file=options.json)


if __name__ == "__main__":
    main()
