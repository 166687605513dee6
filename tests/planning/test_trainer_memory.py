"""Predicted memory against the trainer's own model and sharding, run on fake tensors.

PyTorch's FSDP memory tracker counts what eight ranks would hold, on one CPU core and without
memory. CPU's RMSNorm keeps fp32 copies that the GPU's fused one does not, so it is replaced here by
one that keeps what the fused one keeps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from cdk_blackwell.planning.memory import GIB, estimate_memory
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Layout
from trainer.activation_checkpointing import apply_activation_checkpointing
from trainer.layout import make_meshes
from trainer.model import Decoder
from trainer.sharding import set_micro_batch, shard

LLAMA_8B = replace(ModelShape.preset("llama-3.1-8b"), num_hidden_layers=4)
LLAMA_1B = replace(ModelShape.preset("llama-3.2-1b"), num_hidden_layers=4)
LLAMA_7B = replace(ModelShape.preset("llama-2-7b"), num_hidden_layers=6)
GPUS = 8


class FusedRMSNorm(torch.autograd.Function):
    """Keeps the input, the weight and one fp32 scale per token; computes nothing."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(x, weight, x.new_empty(*x.shape[:-1], 1, dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, _ = context.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def tracked_peak_gib(
    shape: ModelShape,
    *,
    micro_batch_size: int,
    sequence_length: int,
    activation_checkpointing: str,
    loss_chunks: int,
    precision: Any,
    micro_batches: int,
) -> float:
    # What torch works out once for every shape is counted by the tracker (see planning.memory).
    _clear_sharding_prop_cache()
    dist.init_process_group("fake", rank=0, world_size=GPUS, store=FakeStore())
    try:
        layout = Layout(shard_gpus=GPUS, replicas=1, context_parallel=1, tensor_parallel=1)
        meshes = make_meshes(layout, kind="cpu", rank=0)
        with FakeTensorMode():
            model = Decoder(shape, loss_chunks=loss_chunks)
            apply_activation_checkpointing(model, activation_checkpointing)
            shard(model, meshes, precision)
            optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
            tracker = FSDPMemTracker(model, optimizer)
            tracker.track_inputs(())
            tokens = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
            with tracker:
                # Adam's moments exist from the second step on.
                for _ in range(2):
                    for number in range(1, micro_batches + 1):
                        set_micro_batch(model, layout, last=number == micro_batches)
                        tracker.reset_mod_stats()
                        model(tokens, tokens).backward()
                    optimizer.step()
                    optimizer.zero_grad()
            (peak,) = tracker.get_tracker_snapshot("peak").values()
            return float(peak["Total"]) / GIB
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "micro_batch_size", "sequence_length", "checkpointing", "chunks", "micro_batches"),
    [
        (LLAMA_8B, 2, 8192, "none", 8, 1),
        (LLAMA_8B, 2, 8192, "selective", 8, 1),
        (LLAMA_8B, 2, 8192, "full", 8, 1),
        (LLAMA_8B, 1, 4096, "full", 8, 1),
        (LLAMA_8B, 1, 4096, "none", 2, 2),
        (LLAMA_1B, 4, 8192, "none", 8, 1),
        (LLAMA_1B, 2, 8192, "full", 4, 2),
        (LLAMA_7B, 4, 4096, "none", 8, 1),
        (LLAMA_7B, 4, 4096, "every:2", 1, 1),
    ],
)
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_the_trainer_needs_what_is_predicted(
    monkeypatch: pytest.MonkeyPatch,
    shape: ModelShape,
    micro_batch_size: int,
    sequence_length: int,
    checkpointing: str,
    chunks: int,
    micro_batches: int,
    precision: str,
) -> None:
    monkeypatch.setattr(
        torch.nn.RMSNorm, "forward", lambda self, x: FusedRMSNorm.apply(x, self.weight)
    )
    tracked = tracked_peak_gib(
        shape,
        micro_batch_size=micro_batch_size,
        sequence_length=sequence_length,
        activation_checkpointing=checkpointing,
        loss_chunks=chunks,
        precision=precision,
        micro_batches=micro_batches,
    )
    predicted = estimate_memory(
        shape,
        tokens=micro_batch_size * sequence_length,
        sequence_length=sequence_length,
        shard_gpus=GPUS,
        activation_checkpointing=checkpointing,
        loss_chunks=chunks,
        precision=precision,
        accumulates=micro_batches > 1,
    )
    assert -0.002 <= predicted.allocated_gib / tracked - 1 <= 0.01, predicted.peak_moment
    assert predicted.reserved_gib >= tracked
