"""The shape of a dense decoder: what memory, speed, cost and the trainer are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final, get_args

from cdk_blackwell.planning.hugging_face_families import NormPlacement, QKNorm, check_family

MAXIMUM_DIMENSION: Final = 10**7
"""Above any real vocabulary or width; catches slips such as 10**30."""
MAXIMUM_ROPE_THETA: Final = 1e12
MAXIMUM_HEAD_DIM: Final = 256
"""Of torch's flash attention; beyond, memory would grow with the square of the sequence."""
MAXIMUM_NAME_LENGTH: Final = 128


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Llama 3's stretching of the rotary frequencies (``rope_type: llama3``).

    Wavelengths longer than ``original_max_position_embeddings / low_freq_factor`` are divided by
    ``factor``, those shorter than ``original_max_position_embeddings / high_freq_factor`` are
    kept, and those between are blended linearly in the number of turns that
    ``original_max_position_embeddings`` positions make.
    """

    factor: float
    """How much longer than originally trained a context may be, 1 or more."""
    low_freq_factor: float
    high_freq_factor: float
    """Turns below which a wave is stretched in full and above which it is not; low < high."""
    original_max_position_embeddings: int
    """Positions the model was first trained on."""

    def __post_init__(self) -> None:
        for name in ("factor", "low_freq_factor", "high_freq_factor"):
            _check_number("rope_scaling", name, getattr(self, name), most=1e6)
        _check_whole(
            "rope_scaling",
            "original_max_position_embeddings",
            self.original_max_position_embeddings,
        )
        if self.factor < 1:
            raise ValueError(f"rope_scaling factor is {self.factor}; it stretches by 1 or more")
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"rope_scaling low_freq_factor is {self.low_freq_factor}; it must be below "
                f"high_freq_factor {self.high_freq_factor}"
            )


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A dense decoder: grouped-query attention, RoPE, RMSNorm and SwiGLU.

    As it stands a Llama or Mistral; the last three fields make it a Qwen 2 (and 2.5), Qwen 3 or
    OLMo 2. Raises ValueError, naming the field, for values that no such model can have.
    """

    name: str
    """For people; 1 to 128 printable characters."""
    vocab_size: int
    """Rows of the input embedding, padding included."""
    hidden_size: int
    """Width between the blocks."""
    intermediate_size: int
    """Width of SwiGLU's gate."""
    num_hidden_layers: int
    """Blocks."""
    num_attention_heads: int
    """Query heads of a block."""
    num_key_value_heads: int
    """Heads that query heads share; must divide them."""
    head_dim: int
    """Attention heads of this width; ``heads * head_dim`` need not be ``hidden_size``."""
    max_position_embeddings: int
    """Longest sequence the model was made for."""
    rope_theta: float
    """Base of the rotary wavelengths."""
    rms_norm_eps: float
    """Added to the mean square under RMSNorm's root."""
    tie_word_embeddings: bool
    """The output projection is the input embedding."""
    rope_scaling: RopeScaling | None = None
    """Llama 3's stretching of the rotary frequencies; None leaves them as they are."""
    attention_bias: bool = False
    """Biases on the query, key and value projections, never on the output (Qwen 2)."""
    qk_norm: QKNorm = "none"
    """RMSNorm of queries and keys before RoPE: ``head`` over each head's ``head_dim``, one weight
    for all heads (Qwen 3); ``full`` over the whole projection (OLMo 2)."""
    norm_placement: NormPlacement = "pre"
    """``pre`` normalises what goes into attention and feed-forward, ``post`` what comes out of
    them, before the residual is added (OLMo 2)."""

    def __post_init__(self) -> None:
        named = isinstance(self.name, str) and self.name.isprintable()
        if not named or not 1 <= len(self.name) <= MAXIMUM_NAME_LENGTH:
            raise ValueError(
                f"model name is {str(self.name)[:40]!r}; give 1 to {MAXIMUM_NAME_LENGTH} "
                "printable characters"
            )
        for field in fields(self):
            if field.type == "int":
                _check_whole("model", field.name, getattr(self, field.name))
        _check_number("model", "rope_theta", self.rope_theta, most=MAXIMUM_ROPE_THETA)
        _check_number("model", "rms_norm_eps", self.rms_norm_eps, most=1.0)
        for name in ("tie_word_embeddings", "attention_bias"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"model {name} is {getattr(self, name)!r}; give true or false")
        for name, kinds in (("qk_norm", QKNorm), ("norm_placement", NormPlacement)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(
                    f"model {name} is {getattr(self, name)!r}; allowed are "
                    f"{', '.join(get_args(kinds))}"
                )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"model num_attention_heads is {self.num_attention_heads}, which "
                f"num_key_value_heads {self.num_key_value_heads} does not divide: every key-value "
                "head must serve the same number of query heads"
            )
        if self.head_dim % 2:
            raise ValueError(f"model head_dim is {self.head_dim}; RoPE needs an even number")
        if self.head_dim > MAXIMUM_HEAD_DIM:
            raise ValueError(
                f"model head_dim is {self.head_dim}; attention kernels that make no matrix of all "
                f"scores take up to {MAXIMUM_HEAD_DIM}"
            )
        if self.rope_scaling is not None and not isinstance(self.rope_scaling, RopeScaling):
            raise ValueError(f"model rope_scaling is {self.rope_scaling!r}; give a RopeScaling")
        check_family(self)

    @property
    def key_value_size(self) -> int:
        """Width of the key (and of the value) projection."""
        return self.num_key_value_heads * self.head_dim

    @property
    def query_size(self) -> int:
        """Width of the query projection, equal to ``hidden_size`` in most models."""
        return self.num_attention_heads * self.head_dim

    @cached_property
    def layer_parameter_count(self) -> int:
        """Parameters of one block: attention with its biases and norms, SwiGLU and two norms."""
        h, q, k = self.hidden_size, self.query_size, self.key_value_size
        attention = h * (2 * q + 2 * k)
        if self.attention_bias:
            attention += q + 2 * k
        if self.qk_norm == "head":
            attention += 2 * self.head_dim
        elif self.qk_norm == "full":
            attention += q + k
        return attention + 3 * h * self.intermediate_size + 2 * h

    @property
    def embedding_parameter_count(self) -> int:
        """Parameters of one vocabulary matrix (the input embedding; the head when not tied)."""
        return self.vocab_size * self.hidden_size

    @cached_property
    def parameter_count(self) -> int:
        """All parameters, a tied head counted once."""
        matrices = 1 if self.tie_word_embeddings else 2
        return (
            self.num_hidden_layers * self.layer_parameter_count
            + matrices * self.embedding_parameter_count
            + self.hidden_size
        )

    @classmethod
    def preset_names(cls) -> tuple[str, ...]:
        """Names that ``preset`` knows, smallest model first."""
        from cdk_blackwell.planning.presets import PRESETS

        return tuple(PRESETS)

    @classmethod
    def preset(cls, name: str) -> ModelShape:
        """A published model by name; ValueError lists the known ones.

        Case and punctuation do not matter, and the name of its Hugging Face repository will do:
        ``qwen2.5-7b``, ``Qwen 2.5 7B`` and ``Qwen/Qwen2.5-7B`` are the same.
        """
        from cdk_blackwell.planning.presets import find_preset

        return find_preset(name)

    @classmethod
    def from_hugging_face_config(
        cls, source: str | Path | Mapping[str, Any], *, name: str | None = None
    ) -> ModelShape:
        """Read a Hugging Face ``config.json``; ValueError says what is wrong and where.

        :param source: path of the file, or what it holds.
        :param name: of the model. Default: what the config says, else its ``model_type``.
        """
        from cdk_blackwell.planning.hugging_face import read_config

        return read_config(source, name=name)

    def to_hugging_face_config(self) -> dict[str, Any]:
        """A config that ``transformers`` loads as a model of the same shape and computation."""
        from cdk_blackwell.planning.hugging_face import write_config

        return write_config(self)


def _check_whole(owner: str, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{owner} {name} is {value!r}; a whole number is needed")
    if not 1 <= value <= MAXIMUM_DIMENSION:
        raise ValueError(f"{owner} {name} is {value}; allowed are 1 to {MAXIMUM_DIMENSION:,}")


def _check_number(owner: str, name: str, value: object, *, most: float) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= most:  # type: ignore[operator]
        raise ValueError(
            f"{owner} {name} is {value!r}; a number above 0 and up to {most:g} is needed"
        )
