"""Loops with nothing around them: forward, backward, clipping, fused AdamW, and the loss read.

Several ranks average gradients once per step, as torch's ``DistributedDataParallel`` or
``fully_shard`` do it when told which micro-batch is the last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.peers.clock import Speed, clocks, ends_of_intervals, speed
from benchmarks.peers.hugging_face import llama
from benchmarks.peers.plain_gpt import PlainGPT
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.layout import make_meshes
from trainer.model import Decoder, initialise
from trainer.optimizer import make_optimizer
from trainer.parallel import World
from trainer.run import build_model
from trainer.sharding import set_micro_batch

MeanLoss = Callable[[nn.Module, Tensor], Tensor]
"""Of a micro-batch of token ids, ``(sequences, sequence length + 1)``."""


def same_model(spec: RunSpec, world: World, batches: Tensor) -> Speed:
    """The trainer's own model and optimizer."""
    model = Decoder(spec.model, loss_chunks=spec.recipe.loss_chunks)
    initialise(model, seed=spec.recipe.seed)
    optimizer = make_optimizer(model, spec.recipe.optimizer)
    return replicated(model, optimizer, world, batches, loss=mean_of_sum)


def fully_sharded(spec: RunSpec, world: World, batches: Tensor) -> Speed:
    """The same with parameters sharded by torch's ``fully_shard``, as models of billions need."""
    model = build_model(spec, make_meshes(spec.layout, kind="cpu", rank=world.rank), world)
    optimizer = make_optimizer(model, spec.recipe.optimizer)

    def backward(micro_batch: Tensor, *, last: bool) -> Tensor:
        set_micro_batch(model, spec.layout, last=last)
        return scaled_backward(mean_of_sum(model, micro_batch), batches)

    return timed(model, optimizer, batches, backward)


def independent_model(spec: RunSpec, world: World, batches: Tensor) -> Speed:
    """A short model of the kind of nanoGPT's, which shares no code with the trainer."""
    model = PlainGPT(spec.model)
    return replicated(model, adamw(model), world, batches, loss=lambda m, b: m(b[:, :-1], b[:, 1:]))


def transformers_model(spec: RunSpec, world: World, batches: Tensor) -> Speed:
    """Transformers' LlamaForCausalLM."""
    model = llama(spec.model)

    def loss(model: nn.Module, micro_batch: Tensor) -> Tensor:
        logits = model(input_ids=micro_batch[:, :-1], use_cache=False).logits
        return cross_entropy(logits.flatten(0, 1), micro_batch[:, 1:].flatten())

    return replicated(model, adamw(model), world, batches, loss=loss)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Torch's fused one."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


def mean_of_sum(model: nn.Module, micro_batch: Tensor) -> Tensor:
    """The trainer's model returns the sum of its tokens' losses."""
    total: Tensor = model(micro_batch[:, :-1], micro_batch[:, 1:])
    return total / micro_batch[:, 1:].numel()


def scaled_backward(loss: Tensor, batches: Tensor) -> Tensor:
    """Add a micro-batch's share of the step's gradients; returns its share of the loss."""
    share = loss / batches.shape[1]
    share.backward()
    return share.detach()


def replicated(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    world: World,
    batches: Tensor,
    *,
    loss: MeanLoss,
) -> Speed:
    """Whole on every rank; alone, without torch's ``DistributedDataParallel``."""
    parallel: Any = DistributedDataParallel(model) if world.size > 1 else model

    def backward(micro_batch: Tensor, *, last: bool) -> Tensor:
        alone = contextlib.nullcontext() if last or world.size == 1 else parallel.no_sync()
        with alone:
            return scaled_backward(loss(parallel, micro_batch), batches)

    return timed(model, optimizer, batches, backward)


def timed(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Tensor,
    backward: Callable[..., Tensor],
) -> Speed:
    """All steps; ``batches`` is ``(steps, micro-batches, sequences, sequence length + 1)``."""
    ends = []
    for batch in batches:
        losses = [
            backward(micro_batch, last=index == len(batch) - 1)
            for index, micro_batch in enumerate(batch)
        ]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.stack(losses).sum().item()
        ends.append(clocks())
    return speed(ends_of_intervals(ends))
