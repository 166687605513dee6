"""AdamW with linear warm-up and cosine decay."""

from __future__ import annotations

import math

import torch
from torch import nn

from cdk_blackwell.planning.run_spec import Optimizer


def learning_rate(step: int, *, total_steps: int, optimizer: Optimizer) -> float:
    """Rate of optimizer step ``step``, counted from 1 to ``total_steps``."""
    peak, warmup = optimizer.peak_learning_rate, optimizer.warmup_steps
    if step <= warmup:
        return peak * step / warmup
    floor = peak * optimizer.minimum_learning_rate_ratio
    done = (step - warmup) / max(1, total_steps - warmup)
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def make_optimizer(
    model: nn.Module, settings: Optimizer, *, one_by_one: bool = False
) -> torch.optim.AdamW:
    """Weight decay acts on matrices, never on norms or on the input embedding.

    Fused is one kernel for many parameters; on CPU, too, it spares sharded parameters the way of
    each small operation through DTensor.

    :param one_by_one: plain operations, parameter by parameter, whatever the settings say. Default:
        no.
    """
    fused = settings.implementation == "fused" and not one_by_one
    named = list(model.named_parameters())
    decayed = [p for name, p in named if p.dim() >= 2 and not name.startswith("embed_tokens")]
    others = [p for name, p in named if p.dim() < 2 or name.startswith("embed_tokens")]
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings.peak_learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=fused,
        foreach=not fused and not one_by_one,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set it for all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate
