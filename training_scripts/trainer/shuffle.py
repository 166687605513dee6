"""A deterministic permutation of ``range(n)`` that is computed point by point.

A Feistel network over the next power of four, walked until it lands inside the range. So the
position in an epoch is a plain number, no permutation is stored, and any rank count reads the same
order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROUNDS = 6
_UINT64 = np.uint64


def permute(index: NDArray[np.int64], n: int, *, key: int) -> NDArray[np.int64]:
    """Where each index of ``range(n)`` goes; a bijection for every key."""
    half_bits = max(1, -(-(n - 1).bit_length() // 2))
    keys = _mix(np.arange(ROUNDS, dtype=_UINT64) + _mix(np.array([key], dtype=_UINT64)))
    out = _feistel(index.astype(_UINT64), half_bits, keys)
    while (outside := out >= _UINT64(n)).any():
        out[outside] = _feistel(out[outside], half_bits, keys)
    return out.astype(np.int64)


def _feistel(
    value: NDArray[np.uint64], half_bits: int, keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    mask, shift = _UINT64((1 << half_bits) - 1), _UINT64(half_bits)
    left, right = value >> shift, value & mask
    for key in keys:
        left, right = right, left ^ (_mix(right + key) & mask)
    return (left << shift) | right


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser."""
    value = (value ^ (value >> _UINT64(30))) * _UINT64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> _UINT64(27))) * _UINT64(0x94D049BB133111EB)
    return value ^ (value >> _UINT64(31))
