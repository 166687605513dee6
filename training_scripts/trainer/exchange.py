"""All-to-all between ranks that share sequences: heads are exchanged for tokens, or back.

Differentiable, in two forms of the same steps: plain, which a memory tracker sees into, and as an
operator, which torch.compile takes into a block's graph as it is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.parallel import group_named


def exchange(x: Tensor, group: dist.ProcessGroup, *, split: int, join: int) -> Tensor:
    """Give every rank its share of dimension ``split``, and join what is received along ``join``.

    Differentiable: gradients travel back the same way.
    """
    out: Tensor
    if torch.compiler.is_compiling():
        out = exchange_operator(x, group.group_name, group.size(), split, join)
    else:
        out = _Exchange.apply(x, group, split, join)  # type: ignore[no-untyped-call]
    return out


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, group: dist.ProcessGroup, split: int, join: int) -> Tensor:
        context.settings = (group, split, join)
        return _all_to_all(x, group, split, join)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        group, split, join = context.settings
        return _all_to_all(gradient, group, join, split), None, None, None


def _all_to_all(x: Tensor, group: dist.ProcessGroup, split: int, join: int) -> Tensor:
    sent = torch.stack(x.chunk(group.size(), dim=split))
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return torch.cat(received.unbind(), dim=join)


@torch.library.custom_op("cdk_blackwell::exchange", mutates_args=())
def exchange_operator(x: Tensor, group: str, ranks: int, split: int, join: int) -> Tensor:
    """Give every rank its share, as ``exchange`` does, among the ``ranks`` of a named group."""
    return _all_to_all(x, group_named(group), split, join)


@exchange_operator.register_fake
def _(x: Tensor, group: str, ranks: int, split: int, join: int) -> Tensor:
    sizes = list(x.shape)
    sizes[split] //= ranks
    sizes[join] *= ranks
    return x.new_empty(sizes)


def _keep_settings(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.settings = inputs[1:]


def _exchange_back(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
    group, ranks, split, join = context.settings
    return exchange_operator(gradient, group, ranks, join, split), None, None, None, None


exchange_operator.register_autograd(_exchange_back, setup_context=_keep_settings)
