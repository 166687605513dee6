"""The families of dense decoders that the trainer computes exactly, and how they differ.

Read from the modelling code of ``transformers`` 5.24 (``models/<model_type>/modeling_*.py``) and,
for what a config may leave out, from its configuration classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

QKNorm = Literal["none", "head", "full"]
"""RMSNorm of queries and keys: of each head by itself, or of the whole projection."""
NormPlacement = Literal["pre", "post"]
"""Whether a block normalises the inputs of attention and feed-forward, or their outputs."""


class Architecture(Protocol):
    """What tells the families apart; a ModelShape has it."""

    @property
    def attention_bias(self) -> bool: ...
    @property
    def qk_norm(self) -> QKNorm: ...
    @property
    def norm_placement(self) -> NormPlacement: ...


@dataclass(frozen=True, kw_only=True)
class Family:
    """One ``model_type`` of Hugging Face."""

    model_type: str
    architecture: str
    """Class in ``transformers``."""
    attention_bias: bool = False
    qk_norm: QKNorm = "none"
    norm_placement: NormPlacement = "pre"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of the config's keys that ``transformers`` assumes when they are absent, as far as
    they differ from Llama's."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of a written config: what this library never has."""

    def matches(self, shape: Architecture) -> bool:
        """Whether a shape is computed as this family is."""
        return self.kind == (shape.attention_bias, shape.qk_norm, shape.norm_placement)

    @property
    def kind(self) -> tuple[bool, QKNorm, NormPlacement]:
        """The three fields that tell families apart."""
        return self.attention_bias, self.qk_norm, self.norm_placement


_NO_WINDOW: Final = {"use_sliding_window": False, "sliding_window": None}

FAMILIES: Final = {
    family.model_type: family
    for family in (
        Family(
            model_type="llama",
            architecture="LlamaForCausalLM",
            written={"attention_bias": False, "mlp_bias": False},
        ),
        Family(  # Llama but for its window; Llama is preferred, see ``family_of``
            model_type="mistral",
            architecture="MistralForCausalLM",
            defaults={"num_key_value_heads": 8, "sliding_window": 4096},
            written={"sliding_window": None},
        ),
        Family(
            model_type="qwen2",
            architecture="Qwen2ForCausalLM",
            attention_bias=True,
            defaults={"num_key_value_heads": 32, "sliding_window": 4096},
            written=_NO_WINDOW,
        ),
        Family(
            model_type="qwen3",
            architecture="Qwen3ForCausalLM",
            qk_norm="head",
            defaults={"num_key_value_heads": 32, "head_dim": 128, "sliding_window": 4096},
            written={"attention_bias": False, **_NO_WINDOW},
        ),
        Family(
            model_type="olmo2",
            architecture="Olmo2ForCausalLM",
            qk_norm="full",
            norm_placement="post",
            defaults={"rms_norm_eps": 1e-5},
            written={"attention_bias": False},
        ),
    )
}


def check_family(shape: Architecture) -> None:
    """Refuse a mixture of families: ``transformers`` could not load what it trains."""
    if not any(family.matches(shape) for family in FAMILIES.values()):
        known = "; ".join(
            f"attention_bias {str(family.attention_bias).lower()}, qk_norm {family.qk_norm}, "
            f"norm_placement {family.norm_placement} ({family.model_type})"
            for family in FAMILIES.values()
            if family.model_type != "mistral"
        )
        raise ValueError(
            f"model has attention_bias {str(shape.attention_bias).lower()}, qk_norm "
            f"{shape.qk_norm!r} and norm_placement {shape.norm_placement!r}, which no family has "
            f"together; allowed are {known}"
        )


def family_of(shape: Architecture, *, heads_divide_hidden: bool) -> Family:
    """The family to write a shape as.

    A plain decoder is written as Llama, which everything reads, also when it was read as Mistral;
    as Mistral where ``transformers`` refuses such a Llama: heads that do not divide the width.
    """
    matching = [family for family in FAMILIES.values() if family.matches(shape)]
    return matching[0 if heads_divide_hidden else -1]
