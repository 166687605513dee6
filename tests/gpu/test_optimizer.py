"""Fused and foreach AdamW: the same update; what each costs is left in the figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from cdk_blackwell.planning.run_spec import OptimizerImplementation
from tests.training_scripts.tiny import tiny_spec
from trainer.optimizer import make_optimizer
from trainer.parallel import World

pytestmark = pytest.mark.gpu

SIZE, LAYERS, STEPS = 4096, 8, 6


def weights_after(
    implementation: OptimizerImplementation, world: World
) -> tuple[list[torch.Tensor], float, int]:
    """Weights after some steps; the last one's milliseconds and its peak bytes beyond the state."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(SIZE, SIZE, device=world.device) for _ in range(LAYERS)))
    settings = replace(tiny_spec().recipe.optimizer, implementation=implementation)
    optimizer = make_optimizer(model, settings)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before = 0
    for step in range(STEPS):
        for parameter in model.parameters():
            parameter.grad = torch.sin(parameter.detach() * (step + 1))
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        begin.record()
        optimizer.step()
        end.record()
    end.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    return [p.detach() for p in model.parameters()], begin.elapsed_time(end), peak


def test_both_make_the_same_update_and_fused_needs_no_copy(
    world: World, figures: dict[str, Any]
) -> None:
    fused, fused_ms, fused_bytes = weights_after("fused", world)
    foreach, foreach_ms, foreach_bytes = weights_after("foreach", world)
    figures["optimizer"] = {
        "milliseconds": {"fused": fused_ms, "foreach": foreach_ms},
        "bytes_beyond_state": {"fused": fused_bytes, "foreach": foreach_bytes},
    }
    for one, other in zip(fused, foreach, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    copy = sum(weight.numel() * 4 for weight in fused)
    assert fused_bytes < copy / 10
    assert fused_bytes < foreach_bytes <= 1.2 * copy
