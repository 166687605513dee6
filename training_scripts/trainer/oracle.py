"""The memory oracle: one rank's training step on fake tensors, counted by PyTorch's tracker.

``python -m trainer.oracle`` reads ``model``, ``recipe`` and ``layout`` as one JSON object, in the
words of ``run.json`` or of ``plan --json``, and answers with one JSON object (``Measurement``).
It builds the trainer's own model, sharding and optimizer; only RMSNorm is replaced, by what its
fused CUDA kernel keeps, since the CPU's keeps fp32 copies. A fake process group stands for the
other ranks, so any layout is counted on one CPU core and without memory.

Always run in full: all layers, a first step (after which Adam's moments exist) and a second step of
up to three micro-batches, which differ: the first has no gradients, the last gives weights up.

What it counts are plain operations. Compiled kernels cannot run here. The tracker and the fake
process group are private parts of torch; the trainer itself never imports this module.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import MethodType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from cdk_blackwell.planning.contracts import EXIT_BAD_INPUT
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Layout, Recipe
from cdk_blackwell.planning.strict_json import read_dataclass
from trainer.activation_checkpointing import apply_activation_checkpointing
from trainer.data import BatchPlan
from trainer.errors import TrainingError
from trainer.layout import Meshes, check_layout, make_meshes
from trainer.model import Decoder
from trainer.optimizer import make_optimizer
from trainer.precision import after_optimizer_step, apply_precision
from trainer.sharding import clip_gradients, set_micro_batch, shard, share_sequences
from trainer.tensor_parallel import complete_gradients, split_tensors

GIB: Final = 1024**3
DIFFERENT_MICRO_BATCHES: Final = 3
"""The first, the last, and those between, which are all alike."""
DERIVED: Final = frozenset({"parameters"})
"""What ``plan --json`` adds to a model's shape."""

_NOT_ON_FAKE_TENSORS: Final = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    NotImplementedError,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)


class RefusedError(Exception):
    """This plan cannot be counted; the message says why and what can be."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be counted."""

    model: ModelShape
    recipe: Recipe
    layout: Layout

    @classmethod
    def from_dict(cls, value: Any) -> Plan:
        """Read strictly what lies under the three keys; ValueError names what is wrong."""
        if not isinstance(value, Mapping):
            raise ValueError(f"expected one JSON object, got {value!r}")
        missing = [key for key in ("model", "recipe", "layout") if key not in value]
        if missing:
            raise ValueError(f"the plan lacks key {missing[0]!r}")
        model = value["model"]
        if isinstance(model, Mapping):
            model = {key: item for key, item in model.items() if key not in DERIVED}
        return cls(
            model=read_dataclass(ModelShape, model, "model"),
            recipe=read_dataclass(Recipe, value["recipe"], "recipe"),
            layout=read_dataclass(Layout, value["layout"], "layout"),
        )


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one rank holds at the peak of its training step."""

    allocated_gib: float
    """Peak of live tensors."""
    parts_gib: dict[str, float]
    """The same by the tracker's kinds, at the peak; those that are nothing are left out."""
    micro_batches: int
    """Per step, of those that were run."""
    seconds: float
    method: str
    """What was run, for people."""


def measure(plan: Plan, *, progress: Callable[[str], None] = lambda _: None) -> Measurement:
    """Count ``plan`` on this process, which must be in no process group; RefusedError if it cannot.

    :param progress: is told what is being done.
    """
    started = time.perf_counter()
    batches = _check(plan)
    try:
        peak = _peak(plan, micro_batches=batches, progress=progress)
    except _NOT_ON_FAKE_TENSORS as error:
        raise RefusedError(
            f"precision {plan.recipe.precision} in this layout does not run on fake tensors "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); use precision bf16"
        ) from error
    total = peak.pop("Total")
    return Measurement(
        allocated_gib=total / GIB,
        parts_gib={name: size / GIB for name, size in peak.items() if size},
        micro_batches=batches,
        seconds=time.perf_counter() - started,
        method=_method(plan, batches),
    )


def _check(plan: Plan) -> int:
    """Refuse what would give a wrong number; returns the micro-batches to run per step."""
    recipe, layout = plan.recipe, plan.layout
    if recipe.optimizer.implementation != "fused":
        raise RefusedError(
            f"optimizer implementation {recipe.optimizer.implementation} is over-counted by the "
            "tracker; use fused, whose memory the per-parameter AdamW run here has"
        )
    check_layout(plan, layout)
    batches = BatchPlan.make(
        global_sequences=recipe.global_batch_tokens // recipe.sequence_length,
        micro_batch_size=recipe.micro_batch_size,
        ranks=layout.data_parallel,
    )
    if batches.micro_batch_size != recipe.micro_batch_size:
        raise RefusedError(
            f"micro_batch_size is {recipe.micro_batch_size}; it must divide the "
            f"{batches.micro_batch_size * batches.accumulation} sequences per step of a rank"
        )
    return min(batches.accumulation, DIFFERENT_MICRO_BATCHES)


def _peak(plan: Plan, *, micro_batches: int, progress: Callable[[str], None]) -> dict[str, int]:
    """Bytes by kind, and their ``Total``."""
    # What torch works out once for every shape is counted by the tracker (see planning.memory), so
    # that an earlier count in this process must not have done it.
    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
    rank = _busiest_rank(plan.layout)
    with _alone_among(plan.layout.gpus, rank=rank):
        meshes = make_meshes(plan.layout, kind="cpu", rank=rank)
        with FakeTensorMode(), _meshes_stay_real():
            progress(f"building {plan.model.num_hidden_layers} layers")
            model = _build(plan, meshes)
            optimizer = make_optimizer(model, plan.recipe.optimizer, one_by_one=True)
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs(())
            with tracker:
                step = _Step(plan, model, optimizer, meshes, tracker, progress)
                step.run(1, name="first step")
                step.run(micro_batches, name="second step")
            (peak,) = tracker.get_tracker_snapshot("peak").values()
    return {str(getattr(kind, "value", kind)): int(size) for kind, size in peak.items()}


def _busiest_rank(layout: Layout) -> int:
    """A rank in the last place among those that gather keys: it attends to the most pieces."""
    gather = layout.context_parallel // layout.ulysses
    return (gather - 1) * layout.ulysses * layout.tensor_parallel


@contextmanager
def _alone_among(ranks: int, *, rank: int) -> Iterator[None]:
    """A process group whose other ranks do not exist."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def _meshes_stay_real() -> Iterator[None]:
    """Let FSDP join its mesh to the tensor-parallel one, whose ranks it reads as numbers."""
    name, join = "_concatenate", DeviceMesh._concatenate

    def join_real(meshes: list[DeviceMesh]) -> DeviceMesh:
        with unset_fake_temporarily():
            return join(meshes)

    setattr(DeviceMesh, name, staticmethod(join_real))
    try:
        yield
    finally:
        setattr(DeviceMesh, name, staticmethod(join))


def _build(plan: Plan, meshes: Meshes) -> Decoder:
    """As ``trainer.run`` does, without numbers in it."""
    recipe = plan.recipe
    model = Decoder(plan.model, loss_chunks=recipe.loss_chunks)
    apply_precision(model, recipe.precision, emulate=True, bf16_edge_blocks=recipe.bf16_edge_blocks)
    for module in model.modules():
        if isinstance(module, nn.RMSNorm):
            module.forward = MethodType(_fused_norm, module)  # type: ignore[method-assign]
    split_tensors(model, meshes.tensor)
    share_sequences(model, meshes.context)
    apply_activation_checkpointing(model, recipe.activation_checkpointing)
    shard(model, meshes, recipe.precision)
    return model


@dataclass(frozen=True)
class _Step:
    """Training steps as ``trainer.loop`` does them, of tokens without values."""

    plan: Plan
    model: Decoder
    optimizer: torch.optim.Optimizer
    meshes: Meshes
    tracker: FSDPMemTracker
    progress: Callable[[str], None]

    def run(self, micro_batches: int, *, name: str) -> None:
        recipe, layout = self.plan.recipe, self.plan.layout
        length = recipe.sequence_length // layout.context_parallel
        for number in range(1, micro_batches + 1):
            where = f"{name}, micro-batch {number} of {micro_batches}"
            tokens = torch.zeros(recipe.micro_batch_size, length, dtype=torch.long)
            set_micro_batch(self.model, layout, last=number == micro_batches)
            self.tracker.reset_mod_stats()
            self.progress(f"{where}: forward")
            loss = self.model(tokens, tokens) / recipe.global_batch_tokens
            self.progress(f"{where}: backward")
            (loss * (layout.shard_gpus * layout.replicas)).backward()
        self.progress(f"{name}: optimizer")
        complete_gradients(self.model, self.meshes.tensor)
        clip_gradients(self.model.parameters(), maximum_norm=recipe.optimizer.gradient_clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        after_optimizer_step(self.model, recipe.precision)


class _FusedRMSNorm(torch.autograd.Function):
    """Keeps the input, the weight and one fp32 scale per token; computes nothing."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(x, weight, x.new_empty(*x.shape[:-1], 1, dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, _ = context.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def _fused_norm(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    out: Tensor = _FusedRMSNorm.apply(x, norm.weight)  # type: ignore[no-untyped-call]
    return out


def _method(plan: Plan, micro_batches: int) -> str:
    batches = "1 micro-batch" if micro_batches == 1 else f"{micro_batches} micro-batches"
    text = (
        f"the trainer's model, all {plan.model.num_hidden_layers} layers, two steps of up to "
        f"{batches} on fake tensors as rank {_busiest_rank(plan.layout)} of {plan.layout.gpus}; "
        "plain operations; whole tensors of plain AdamW's first step, which no GPU makes, "
        "are in both numbers"
    )
    if plan.recipe.compile:
        text += "; the recipe compiles its blocks, which the tracker cannot run"
    return text


def main() -> int:
    """JSON on stdin to JSON on stdout, progress on stderr; 2 and one line for a refusal."""

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        measurement = measure(Plan.from_dict(json.load(sys.stdin)), progress=tell)
    except (RefusedError, TrainingError, ValueError) as error:
        tell(f"oracle: {error}")
        return EXIT_BAD_INPUT
    print(json.dumps(asdict(measurement)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
