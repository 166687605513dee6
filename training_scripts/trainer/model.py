"""A dense decoder: grouped-query attention, RoPE, RMSNorm and SwiGLU.

The shape decides which family of Hugging Face it computes (Llama, Qwen 2, Qwen 3 or OLMo 2);
parameter names are those of its ``ForCausalLM`` class without the leading ``model.``.
Suffixes name dimensions: B batch, S sequence, T = B*S tokens, E hidden, H heads, D head, V vocab.
"""

# ruff: noqa: N803, N806, N812 - suffixes of tensors name their dimensions
from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from cdk_blackwell.planning.model_shape import ModelShape
from trainer.attention import Attend, causal_attention
from trainer.head import Head, chunked_loss
from trainer.rope import RotaryTable

INITIAL_STANDARD_DEVIATION = 0.02

Recompute = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]


class Attention(nn.Module):
    """Causal self-attention with fewer key-value heads than query heads.

    Queries and keys may be normalised before they are rotated, by head or as a whole.
    """

    def __init__(self, shape: ModelShape, rotary: RotaryTable) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.rotary = rotary
        self.attend: Attend = causal_attention
        bias = shape.attention_bias
        self.q_proj = nn.Linear(shape.hidden_size, shape.query_size, bias=bias)
        self.k_proj = nn.Linear(shape.hidden_size, shape.key_value_size, bias=bias)
        self.v_proj = nn.Linear(shape.hidden_size, shape.key_value_size, bias=bias)
        self.o_proj = nn.Linear(shape.query_size, shape.hidden_size, bias=False)
        self.qk_norm = shape.qk_norm
        if self.qk_norm != "none":
            per_head = self.qk_norm == "head"
            q_size = shape.head_dim if per_head else shape.query_size
            k_size = shape.head_dim if per_head else shape.key_value_size
            self.q_norm = nn.RMSNorm(q_size, eps=shape.rms_norm_eps)
            self.k_norm = nn.RMSNorm(k_size, eps=shape.rms_norm_eps)

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Mix tokens of one sequence, each with those before it."""
        q_BSP, k_BSP, v_BSP = self.q_proj(x_BSE), self.k_proj(x_BSE), self.v_proj(x_BSE)
        if self.qk_norm == "full":
            q_BSP, k_BSP = self.q_norm(q_BSP), self.k_norm(k_BSP)
        q_BSHD, k_BSHD, v_BSHD = (
            projected.unflatten(-1, (-1, self.head_dim)) for projected in (q_BSP, k_BSP, v_BSP)
        )
        if self.qk_norm == "head":
            q_BSHD, k_BSHD = self.q_norm(q_BSHD), self.k_norm(k_BSHD)
        q_BHSD, k_BHSD, v_BHSD = (x.transpose(1, 2) for x in (q_BSHD, k_BSHD, v_BSHD))
        mixed_BHSD = self.attend(self.rotary.rotate(q_BHSD), self.rotary.rotate(k_BHSD), v_BHSD)
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
        self.norm_placement = shape.norm_placement
        if self.norm_placement == "pre":
            self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.self_attn = Attention(shape, rotary)
        # Of attention's output in "post" models; in "pre" models it is what the MLP gets.
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.mlp = FeedForward(shape)
        if self.norm_placement == "post":
            self.post_feedforward_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.recompute: Recompute | None = None

    def forward(self, x_BSE: Tensor) -> Tensor:
        """Attention and feed-forward, each with its residual."""
        if self.recompute is None or not torch.is_grad_enabled():
            return self._layer(x_BSE)
        return self.recompute(self._layer, x_BSE)

    def _layer(self, x_BSE: Tensor) -> Tensor:
        out: Tensor
        if self.norm_placement == "post":
            x_BSE = x_BSE + self.post_attention_layernorm(self.self_attn(x_BSE))
            out = x_BSE + self.post_feedforward_layernorm(self.mlp(x_BSE))
        else:
            x_BSE = x_BSE + self.self_attn(self.input_layernorm(x_BSE))
            out = x_BSE + self.mlp(self.post_attention_layernorm(x_BSE))
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
        # Tied: the embedding's matrix is the output projection too.
        self.lm_head = None if shape.tie_word_embeddings else Head(shape, loss_chunks=loss_chunks)

    def hidden(self, tokens_BS: Tensor) -> Tensor:
        """Final hidden states, normalised."""
        self.rotary.prepare(tokens_BS.shape[1], tokens_BS.device)
        x_BSE = self.embed_tokens(tokens_BS)
        for block in self.layers:
            x_BSE = block(x_BSE)
        out: Tensor = self.norm(x_BSE)
        return out

    def logits(self, tokens_BS: Tensor) -> Tensor:
        """Scores of every next token, of a model that is not sharded; for small inputs."""
        head = self.lm_head or self.embed_tokens
        return F.linear(self.hidden(tokens_BS), head.weight)

    def forward(self, tokens_BS: Tensor, targets_BS: Tensor) -> Tensor:
        """Cross-entropy in nats summed over all targets that are not padding, in fp32."""
        x_TE, targets_T = self.hidden(tokens_BS).flatten(0, 1), targets_BS.flatten()
        if self.lm_head is None:
            return chunked_loss(x_TE, self.embed_tokens.weight, targets_T, chunks=self.loss_chunks)
        out: Tensor = self.lm_head(x_TE, targets_T)
        return out


@torch.no_grad()
def initialise(model: Decoder, *, seed: int) -> None:
    """Fill all parameters, equal for every number of ranks.

    Each parameter has a generator of its own, seeded by its name; every rank makes one whole
    parameter at a time and keeps its shard, so nothing is communicated.
    """
    residual = INITIAL_STANDARD_DEVIATION / math.sqrt(2 * model.shape.num_hidden_layers)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(0.0 if name.endswith(".bias") else 1.0)
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
