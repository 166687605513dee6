"""Rotary position embedding in Hugging Face's half-rotation layout, computed in fp32."""

# ruff: noqa: N803, N806 - suffixes of tensors name their dimensions
from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cdk_blackwell.planning.model_shape import ModelShape, RopeScaling


def inverse_frequencies(shape: ModelShape) -> Tensor:
    """``head_dim / 2`` frequencies in radians per token, stretched when the shape asks for it."""
    # The device is named because models are built under torch.device("meta").
    exponent = torch.arange(0, shape.head_dim, 2, dtype=torch.float64, device="cpu")
    exponent /= shape.head_dim
    frequencies = shape.rope_theta**-exponent
    if shape.rope_scaling is not None:
        frequencies = stretch(frequencies, shape.rope_scaling)
    return frequencies.float()


def stretch(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3's stretching: long waves divided by ``factor``, short ones kept, a blend between."""
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return keep * frequencies + (1 - keep) * frequencies / scaling.factor


def every_position(length: int) -> Tensor:
    """0, 1, 2, ...: the tokens are a whole sequence."""
    return torch.arange(length, device="cpu")


class RotaryTable:
    """Cosines and sines of all positions, shared by all blocks and grown on demand.

    Not a module: its tables must survive meta-device construction and must stay fp32 when mixed
    precision casts what is passed into a block.
    """

    def __init__(self, shape: ModelShape) -> None:
        self._frequencies = inverse_frequencies(shape)
        self.positions: Callable[[int], Tensor] = every_position
        """Positions of this rank's tokens, by their number."""
        self.cos_SD = torch.empty(0, shape.head_dim, device="cpu")
        self.sin_SD = torch.empty(0, shape.head_dim, device="cpu")

    def prepare(self, length: int, device: torch.device) -> None:
        """Make the tables cover the positions of ``length`` tokens on ``device``."""
        if self.cos_SD.shape[0] == length and self.cos_SD.device == device:
            return
        positions = self.positions(length)
        angles_SD = torch.outer(positions.float(), self._frequencies).repeat(1, 2)
        self.cos_SD = angles_SD.cos().to(device)
        self.sin_SD = angles_SD.sin().to(device)

    def rotate(self, x_BHSD: Tensor) -> Tensor:
        """Rotate queries or keys by their positions."""
        first, second = x_BHSD.chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return (x_BHSD * self.cos_SD + turned * self.sin_SD).to(x_BHSD.dtype)
