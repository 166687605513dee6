"""Hugging Face ``config.json`` to and from a ModelShape."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.planning.model_shape import ModelShape, RopeScaling

SUPPORTED_TYPES: Final = ("llama", "mistral")
"""Families whose decoder is exactly this library's; Mistral differs in its window alone."""

REFUSED_KEYS: Final = {
    "num_local_experts": "a mixture of experts",
    "num_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
    "moe_num_experts": "a mixture of experts",
    "vision_config": "a multimodal model",
    "audio_config": "a multimodal model",
    "text_config": "a multimodal model",
    "is_encoder_decoder": "an encoder-decoder model",
    "quantization_config": "a quantised checkpoint",
    "attention_bias": "a model with attention biases",
    "mlp_bias": "a model with feed-forward biases",
}
"""Keys that, when set, name a kind of model the trainer does not have."""

_EXPERTS = "a mixture of experts"
_ENCODER = "an encoder"
_BOTH = "an encoder-decoder model"
_MULTIMODAL = "a multimodal model"
REFUSED_TYPES: Final = {
    **dict.fromkeys(
        (
            "dbrx",
            "deepseek_v2",
            "deepseek_v3",
            "gpt_oss",
            "granitemoe",
            "jamba",
            "mixtral",
            "olmoe",
            "phimoe",
            "qwen2_moe",
            "qwen3_moe",
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
            "qwen2_5_vl",
            "qwen2_vl",
            "qwen3_vl",
        ),
        _MULTIMODAL,
    ),
    **dict.fromkeys(
        ("falcon_mamba", "mamba", "mamba2", "rwkv", "recurrent_gemma"), "a recurrent model"
    ),
    "qwen2": "a decoder with biases on queries, keys and values",
    **dict.fromkeys(("olmo2", "olmo3", "qwen3"), "a decoder that normalises its queries and keys"),
    **dict.fromkeys(("gpt2", "gpt_neox", "gptj", "opt"), "a decoder without RMSNorm and SwiGLU"),
    **dict.fromkeys(
        ("cohere", "gemma", "gemma2", "gemma3_text", "granite", "olmo", "phi", "phi3"),
        "a decoder of another make",
    ),
}
"""Well-known families by what the trainer lacks for them."""

_REFUSAL: Final = (
    "which this library does not train; give a dense decoder of the "
    f"{' or '.join(SUPPORTED_TYPES)} family"
)


def read_config(source: str | Path | Mapping[str, Any], *, name: str | None) -> ModelShape:
    """See ``ModelShape.from_hugging_face_config``."""
    if isinstance(source, Mapping):
        return _read(source, where="the model config", name=name)
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the model config {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the model config {path} is not a text file: {error}") from error
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the model config {path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"the model config {path} must hold one JSON object")
    return _read(config, where=f"the model config {path}", name=name)


def _read(config: Mapping[str, Any], *, where: str, name: str | None) -> ModelShape:
    model_type = str(config.get("model_type"))
    if model_type in REFUSED_TYPES:
        raise ValueError(
            f"{where} has model_type {model_type!r}: it is {REFUSED_TYPES[model_type]}, {_REFUSAL}"
        )
    for key, kind in REFUSED_KEYS.items():
        if config.get(key):
            raise ValueError(
                f"{where} has {key} = {str(config[key])[:60]}: it is {kind}, {_REFUSAL}"
            )
    if model_type not in SUPPORTED_TYPES:
        raise ValueError(
            f"{where} has model_type {config.get('model_type')!r}; supported: "
            f"{', '.join(SUPPORTED_TYPES)}"
        )
    if model_type == "mistral" and config.get("sliding_window") is not None:
        warnings.warn(
            f"{where} has sliding_window {config['sliding_window']}: it is ignored, every token "
            "attends to all before it",
            stacklevel=4,
        )
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"{where} has hidden_act {config['hidden_act']!r}; supported: silu")

    def need(key: str) -> Any:
        if config.get(key) is None:
            raise ValueError(f"{where} lacks {key}")
        return config[key]

    heads, hidden = need("num_attention_heads"), need("hidden_size")
    rope = _read_rope(config, where)
    try:
        return ModelShape(
            name=name or str(config.get("_name_or_path") or config.get("name") or model_type),
            vocab_size=need("vocab_size"),
            hidden_size=hidden,
            intermediate_size=need("intermediate_size"),
            num_hidden_layers=need("num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or _divide(hidden, heads),
            max_position_embeddings=need("max_position_embeddings"),
            rope_theta=_as_float(rope["rope_theta"]),
            rms_norm_eps=_as_float(config.get("rms_norm_eps", 1e-6)),
            tie_word_embeddings=config.get("tie_word_embeddings", False),
            rope_scaling=_read_scaling(rope),
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _read_rope(config: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """One object, as transformers 5 writes; older versions write rope_theta and rope_scaling."""
    for key in ("rope_parameters", "rope_scaling"):
        if not isinstance(config.get(key) or {}, Mapping):
            raise ValueError(f"{where} has {key} {str(config[key])[:60]!r}; an object is needed")
    old = {"rope_theta": config.get("rope_theta", 10_000.0), **(config.get("rope_scaling") or {})}
    return {**old, **(config.get("rope_parameters") or {})}


def _divide(hidden: Any, heads: Any) -> Any:
    whole = all(isinstance(value, int) and value > 0 for value in (hidden, heads))
    if not whole or hidden % heads:
        raise ValueError(
            f"head_dim is not given, and hidden_size {hidden!r} divided by num_attention_heads "
            f"{heads!r} is not a whole number"
        )
    return hidden // heads


def _read_scaling(rope: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ValueError(f"rope scaling {kind!r} is not supported; supported: llama3")
    missing = [field.name for field in fields(RopeScaling) if field.name not in rope]
    if missing:
        raise ValueError(f"llama3 rope scaling lacks {missing[0]}")
    return RopeScaling(
        factor=_as_float(rope["factor"]),
        low_freq_factor=_as_float(rope["low_freq_factor"]),
        high_freq_factor=_as_float(rope["high_freq_factor"]),
        original_max_position_embeddings=rope["original_max_position_embeddings"],
    )


def _as_float(value: Any) -> Any:
    """JSON writes 8.0 as 8 at times; anything but a whole number is left to the checks."""
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def write_config(shape: ModelShape) -> dict[str, Any]:
    """See ``ModelShape.to_hugging_face_config``."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": shape.rope_theta}
    if shape.rope_scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": shape.rope_scaling.factor,
            "low_freq_factor": shape.rope_scaling.low_freq_factor,
            "high_freq_factor": shape.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": (
                shape.rope_scaling.original_max_position_embeddings
            ),
        }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "name": shape.name,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.max_position_embeddings,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_parameters": rope,
        "tie_word_embeddings": shape.tie_word_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
    }
