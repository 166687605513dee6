"""Kinds of models that the trainer does not have, by what their ``config.json`` says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdk_blackwell.planning.hugging_face_families import FAMILIES, Family

_EXPERTS: Final = "a mixture of experts"
_ENCODER: Final = "an encoder"
_BOTH: Final = "an encoder-decoder model"
_MULTIMODAL: Final = "a multimodal model"
_RECURRENT: Final = "a recurrent model"

REFUSED_TYPES: Final = {
    **dict.fromkeys(
        (
            "dbrx",
            "deepseek_v2",
            "deepseek_v3",
            "dots1",
            "gpt_oss",
            "jamba",
            "longcat_flash",
            "minimax",
            "mixtral",
            "qwen3_next",
        ),
        _EXPERTS,
    ),
    **dict.fromkeys(
        ("albert", "bert", "deberta-v2", "distilbert", "electra", "modernbert", "roberta"),
        _ENCODER,
    ),
    **dict.fromkeys(("bart", "mbart", "mt5", "pegasus", "t5", "whisper"), _BOTH),
    **dict.fromkeys(
        (
            "clip",
            "gemma3",
            "idefics3",
            "llama4",
            "llava",
            "mistral3",
            "mllama",
            "paligemma",
            "qwen2_audio",
        ),
        _MULTIMODAL,
    ),
    **dict.fromkeys(("falcon_mamba", "mamba", "mamba2", "rwkv", "recurrent_gemma"), _RECURRENT),
    "olmo3": "a decoder whose blocks differ in attention window and rotary frequencies",
    "ministral": "a decoder whose blocks differ in attention window",
    "smollm3": "a decoder with blocks that do not rotate queries and keys",
    **dict.fromkeys(("gpt2", "gpt_neox", "gptj", "opt"), "a decoder without RMSNorm and SwiGLU"),
    **dict.fromkeys(
        ("cohere", "gemma", "gemma2", "gemma3_text", "granite", "olmo", "phi", "phi3"),
        "a decoder of another make",
    ),
}
"""Well-known families by what the trainer lacks for them."""

REFUSED_PARTS: Final = {
    "moe": _EXPERTS,
    "mixtral": _EXPERTS,
    "deepseek": _EXPERTS,
    "kimi": _EXPERTS,
    "vl": _MULTIMODAL,
    "llava": _MULTIMODAL,
    "omni": _MULTIMODAL,
    "audio": _MULTIMODAL,
    "vision": _MULTIMODAL,
    "bert": _ENCODER,
    "t5": _BOTH,
    "mamba": _RECURRENT,
}
"""Parts of the names that ``transformers`` gives to the types of a kind."""

REFUSED_KEYS: Final = {
    "num_local_experts": _EXPERTS,
    "num_experts": _EXPERTS,
    "n_routed_experts": _EXPERTS,
    "moe_num_experts": _EXPERTS,
    "vision_config": _MULTIMODAL,
    "audio_config": _MULTIMODAL,
    "text_config": _MULTIMODAL,
    "is_encoder_decoder": _BOTH,
    "quantization_config": "a quantised checkpoint",
    "attention_bias": "a model with a bias on the attention output",
    "mlp_bias": "a model with feed-forward biases",
}
"""Keys that, when set, name a kind of model the trainer does not have."""

_REFUSAL: Final = (
    f"which this library does not train; give a dense decoder of the {', '.join(FAMILIES)} family"
)


def check_config(config: Mapping[str, Any], where: str) -> Family:
    """The config's family; ValueError names what the trainer lacks for it."""
    model_type = str(config.get("model_type"))
    parts = (kind for part, kind in REFUSED_PARTS.items() if part in model_type)
    kind = REFUSED_TYPES.get(model_type) or next(parts, None)
    if kind is not None:
        raise ValueError(f"{where} has model_type {model_type!r}: it is {kind}, {_REFUSAL}")
    family = FAMILIES.get(model_type)
    for key, kind in REFUSED_KEYS.items():
        # Qwen 2 has biases on the inputs of attention alone, and nothing reads the key there.
        expected = key == "attention_bias" and family is not None and family.attention_bias
        if config.get(key) and not expected:
            raise ValueError(
                f"{where} has {key} = {str(config[key])[:60]}: it is {kind}, {_REFUSAL}"
            )
    if family is None:
        raise ValueError(
            f"{where} has model_type {config.get('model_type')!r}; supported: {', '.join(FAMILIES)}"
        )
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"{where} has hidden_act {config['hidden_act']!r}; supported: silu")
    return family
