"""A Llama-family decoder: grouped-query attention, RoPE, RMSNorm and SwiGLU.

Parameter names are those of Hugging Face's ``LlamaForCausalLM`` without the leading ``model.``.
Suffixes name dimensions: B batch, S sequence, T = B*S tokens, E hidden, H heads, D head, V vocab.
"""

# ruff: noqa: N802, N803, N806, N812 - suffixes of tensors name their dimensions
from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint

from cdk_blackwell.planning.model_shape import ModelShape
from trainer.rope import RotaryTable

IGNORED_TARGET = -100
"""Target id of padding: no loss, no gradient."""
INITIAL_STANDARD_DEVIATION = 0.02

Recompute = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]


class Attention(nn.Module):
    """Causal self-attention with fewer key-value heads than query heads."""

    def __init__(self, shape: ModelShape, rotary: RotaryTable) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.grouped = shape.num_key_value_heads != shape.num_attention_heads
        self.rotary = rotary
        self.q_proj = nn.Linear(shape.hidden_size, shape.query_size, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, shape.key_value_size, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, shape.key_value_size, bias=False)
        self.o_proj = nn.Linear(shape.query_size, shape.hidden_size, bias=False)

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Mix tokens of one sequence, each with those before it."""
        q_BHSD, k_BHSD, v_BHSD = (
            projection(x_BSE).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed_BHSD = F.scaled_dot_product_attention(
            self.rotary.rotate(q_BHSD),
            self.rotary.rotate(k_BHSD),
            v_BHSD,
            is_causal=True,
            enable_gqa=self.grouped,
        )
        out: Tensor = self.o_proj(mixed_BHSD.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Transform each token by itself."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x_BSE)) * self.up_proj(x_BSE))
        return out


class Block(nn.Module):
    """One decoder layer; ``recompute`` decides what of it is kept for the backward pass."""

    def __init__(self, shape: ModelShape, rotary: RotaryTable) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.self_attn = Attention(shape, rotary)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.mlp = FeedForward(shape)
        self.recompute: Recompute | None = None

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Attention and feed-forward, each with its residual."""
        if self.recompute is None or not torch.is_grad_enabled():
            return self._layer(x_BSE)
        return self.recompute(self._layer, x_BSE)

    def _layer(self, x_BSE: Tensor) -> Tensor:
        x_BSE = x_BSE + self.self_attn(self.input_layernorm(x_BSE))
        out: Tensor = x_BSE + self.mlp(self.post_attention_layernorm(x_BSE))
        return out


class Decoder(nn.Module):
    """The whole model. ``forward`` returns a summed loss, so that logits never exist as a whole."""

    def __init__(self, shape: ModelShape, *, loss_chunks: int = 1) -> None:
        super().__init__()
        self.shape = shape
        self.loss_chunks = loss_chunks
        self.rotary = RotaryTable(shape)
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(
            Block(shape, self.rotary) for _ in range(shape.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        if not shape.tie_word_embeddings:
            self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)

    def hidden(self, tokens_BS: Tensor) -> Tensor:
        """Final hidden states, normalised."""
        self.rotary.prepare(tokens_BS.shape[1], tokens_BS.device)
        x_BSE = self.embed_tokens(tokens_BS)
        for block in self.layers:
            x_BSE = block(x_BSE)
        out: Tensor = self.norm(x_BSE)
        return out

    @property
    def head_weight_VE(self) -> Tensor:
        """The output projection: its own matrix, or the embedding's."""
        return self.embed_tokens.weight if self.shape.tie_word_embeddings else self.lm_head.weight

    def logits(self, tokens_BS: Tensor) -> Tensor:
        """Scores of every next token; for tests and small inputs."""
        return F.linear(self.hidden(tokens_BS), self.head_weight_VE)

    def forward(self, tokens_BS: Tensor, targets_BS: Tensor) -> Tensor:
        """Cross-entropy in nats summed over all targets that are not padding, in fp32."""
        x_TE = self.hidden(tokens_BS).flatten(0, 1)
        targets_T = targets_BS.flatten()
        if self.loss_chunks == 1:
            return chunk_loss(x_TE, self.head_weight_VE, targets_T)
        pieces = [
            checkpoint(
                chunk_loss, x, self.head_weight_VE, t, use_reentrant=False, preserve_rng_state=False
            )
            for x, t in zip(
                x_TE.tensor_split(self.loss_chunks),
                targets_T.tensor_split(self.loss_chunks),
                strict=True,
            )
        ]
        return torch.stack(pieces).sum()


def chunk_loss(x_TE: Tensor, weight_VE: Tensor, targets_T: Tensor) -> Tensor:
    """Summed cross-entropy of one piece of the tokens."""
    return F.cross_entropy(
        F.linear(x_TE, weight_VE).float(), targets_T, ignore_index=IGNORED_TARGET, reduction="sum"
    )


@torch.no_grad()
def initialise(model: Decoder, *, seed: int) -> None:
    """Fill all parameters, equal for every number of ranks.

    Each parameter has a generator of its own, seeded by its name; every rank makes one whole
    parameter at a time and keeps its shard, so nothing is communicated.
    """
    residual = INITIAL_STANDARD_DEVIATION / math.sqrt(2 * model.shape.num_hidden_layers)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(1.0)
            continue
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        generator = torch.Generator(parameter.device)
        generator.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device)
        into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
        deviation = residual if into_residual else INITIAL_STANDARD_DEVIATION
        whole.normal_(std=deviation, generator=generator)
        if isinstance(parameter, DTensor):
            mesh, placements = parameter.device_mesh, parameter.placements
            parameter.copy_(distribute_tensor(whole, mesh, placements, src_data_rank=None))
        else:
            parameter.copy_(whole)
