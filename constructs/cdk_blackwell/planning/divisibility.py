"""What must divide what in a layout, for the search and for errors alike."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import Final

from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import EIGHT_BIT, Precision

TENSOR_PARALLEL_DIVIDES: Final = (
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
"""Sizes of a model that tensor-parallel ranks share in equal parts."""


def tensor_parallel_divides(model: ModelShape, ranks: int) -> bool:
    """Whether every rank gets an equal part of each matrix."""
    return not any(getattr(model, size) % ranks for size in TENSOR_PARALLEL_DIVIDES)


def tensor_parallel_works(model: ModelShape, ranks: int, precision: Precision) -> bool:
    """Whether the trainer can split the model's matrices among so many ranks.

    A norm over all of a token's heads needs all heads, and 8 bits scale a matrix as a whole.
    """
    if ranks == 1:
        return True
    whole = model.qk_norm == "full" or precision in EIGHT_BIT
    return not whole and tensor_parallel_divides(model, ranks)


def ulysses_divides(model: ModelShape, ranks: int, *, tensor_parallel: int) -> bool:
    """Whether every rank gets whole key-value heads, and the group stays within an instance."""
    heads = model.num_key_value_heads // tensor_parallel
    return heads % ranks == 0 and P6_B200.gpus % (ranks * tensor_parallel) == 0


def ulysses_suffices(context_parallel: int, ulysses: int, precision: Precision) -> bool:
    """Whether the attention left to a group of ranks has a kernel in this precision.

    What Ulysses does not exchange gathers keys, and attention to gathered keys is put together from
    parts, for which only the 16-bit flash kernels of GPUs give the numbers.
    """
    return precision != "fp32" or ulysses == context_parallel


def sequence_divides(sequence_length: int, context_parallel: int, ulysses: int) -> bool:
    """Whether a sequence splits into equal pieces: one a rank, or two when ranks gather keys.

    With causal attention the first tokens are cheap and the last dear, so a rank that gathers keys
    takes one piece from each end (zig-zag order).
    """
    pieces = context_parallel if ulysses == context_parallel else 2 * context_parallel
    return sequence_length % pieces == 0


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, smallest first."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def nearest(allowed: Iterable[int], wanted: int, *, most: int = 4) -> list[int]:
    """The allowed values nearest to the wanted one, in ascending order."""
    return sorted(sorted(allowed, key=lambda value: abs(value - wanted))[:most])


def either(values: Iterable[int]) -> str:
    """``1, 2 or 4``, with separators for thousands."""
    *most, last = [f"{value:,}" for value in values]
    return f"{', '.join(most)} or {last}" if most else last
