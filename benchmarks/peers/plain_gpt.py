"""A Llama written independently of the trainer, in the style of nanoGPT and litgpt: one short file.

Queries, keys and values come from one projection, gate and up from another, rotation is a complex
product, and the loss is torch's own over whole logits.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from cdk_blackwell.planning.model_shape import ModelShape


class Layer(nn.Module):
    """Attention and feed-forward, each behind its norm."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.heads, self.groups = shape.num_attention_heads, shape.num_key_value_heads
        self.head_dim, hidden = shape.head_dim, shape.hidden_size
        self.before_attention = nn.RMSNorm(hidden, eps=shape.rms_norm_eps)
        self.before_feed_forward = nn.RMSNorm(hidden, eps=shape.rms_norm_eps)
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.groups) * self.head_dim, bias=False)
        self.out = nn.Linear(self.heads * self.head_dim, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * shape.intermediate_size, bias=False)
        self.down = nn.Linear(shape.intermediate_size, hidden, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        """``x`` is ``(batch, sequence, hidden)``; ``rotation`` ``(sequence, head_dim / 2)``."""
        batch, length, _ = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, length, -1, self.head_dim)
        q, k, v = qkv.transpose(1, 2).split([self.heads, self.groups, self.groups], dim=1)
        q, k = rotate(q, rotation), rotate(k, rotation)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.before_feed_forward(x)).chunk(2, dim=-1)
        y: Tensor = x + self.down(silu(gate) * up)
        return y


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotary positions: pairs of numbers as complex ones."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * rotation).flatten(-2)


class PlainGPT(nn.Module):
    """The whole model; ``forward`` returns the mean loss."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        frequencies = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angles = torch.outer(torch.arange(shape.max_position_embeddings), frequencies)
        self.rotation = torch.polar(torch.ones_like(angles), angles)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Both are ``(batch, sequence)``."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.rotation[: tokens.shape[1]])
        logits = self.head(self.norm(x))
        return cross_entropy(logits.flatten(0, 1), targets.flatten())
