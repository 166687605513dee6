"""Hugging Face ``config.json`` to and from a ModelShape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.planning.model_shape import ModelShape, RopeScaling

SUPPORTED_TYPES: Final = ("llama",)

REFUSED_KEYS: Final = {
    "num_local_experts": "a mixture of experts",
    "num_experts": "a mixture of experts",
    "n_routed_experts": "a mixture of experts",
    "vision_config": "a multimodal model",
    "audio_config": "a multimodal model",
    "text_config": "a multimodal model",
    "is_encoder_decoder": "an encoder-decoder model",
    "quantization_config": "a quantised checkpoint",
    "attention_bias": "a model with attention biases",
    "mlp_bias": "a model with feed-forward biases",
}
"""Keys that, when set, name a kind of model the trainer does not have."""


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
    for key, kind in REFUSED_KEYS.items():
        if config.get(key):
            raise ValueError(
                f"{where} has {key} = {str(config[key])[:60]}: it is {kind}, which this library "
                "does not train; give a dense Llama-family decoder"
            )
    model_type = config.get("model_type")
    if model_type not in SUPPORTED_TYPES:
        raise ValueError(
            f"{where} has model_type {model_type!r}; supported: {', '.join(SUPPORTED_TYPES)}"
        )
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"{where} has hidden_act {config['hidden_act']!r}; supported: silu")

    def need(key: str) -> Any:
        if config.get(key) is None:
            raise ValueError(f"{where} lacks {key}")
        return config[key]

    heads, hidden = need("num_attention_heads"), need("hidden_size")
    # transformers 5 writes one object; older versions write rope_theta and rope_scaling.
    rope = config.get("rope_parameters") or {
        "rope_theta": config.get("rope_theta", 10_000.0),
        **(config.get("rope_scaling") or {}),
    }
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
            rope_theta=rope.get("rope_theta", 10_000.0),
            rms_norm_eps=config.get("rms_norm_eps", 1e-6),
            tie_word_embeddings=config.get("tie_word_embeddings", False),
            rope_scaling=_read_scaling(rope),
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _divide(hidden: Any, heads: Any) -> Any:
    whole = all(isinstance(value, int) and value > 0 for value in (hidden, heads))
    if not whole or hidden % heads:
        raise ValueError(f"head_dim is not given and hidden_size {hidden} / {heads} heads is odd")
    return hidden // heads


def _read_scaling(rope: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ValueError(f"rope scaling {kind!r} is not supported; supported: llama3")
    try:
        return RopeScaling(
            factor=float(rope["factor"]),
            low_freq_factor=float(rope["low_freq_factor"]),
            high_freq_factor=float(rope["high_freq_factor"]),
            original_max_position_embeddings=int(rope["original_max_position_embeddings"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"llama3 rope scaling lacks or garbles {error}") from error


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
