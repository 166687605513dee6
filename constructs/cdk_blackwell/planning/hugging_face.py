"""Hugging Face ``config.json`` to and from a ModelShape."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.planning.hugging_face_families import family_of
from cdk_blackwell.planning.hugging_face_refusals import check_config
from cdk_blackwell.planning.json_text import read_json
from cdk_blackwell.planning.model_shape import MAXIMUM_NAME_LENGTH, ModelShape, RopeScaling

LLAMA_DEFAULTS: Final = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False}
"""What ``transformers`` assumes where a config leaves a key out; a family may differ."""
DEFAULT_ROPE_THETA: Final = 10_000.0
"""The same for the rotary base, in all families read here."""
NEEDED_KEYS: Final = (
    "hidden_size",
    "num_attention_heads",
    "vocab_size",
    "intermediate_size",
    "num_hidden_layers",
    "max_position_embeddings",
)
"""Never assumed: a wrong guess would be another model."""
ROPE_KEYS: Final = ("rope_parameters", "rope_scaling")


def read_config(source: str | Path | Mapping[str, Any], *, name: str | None) -> ModelShape:
    """See ``ModelShape.from_hugging_face_config``."""
    if isinstance(source, Mapping):
        return _read(source, where="the model config", name=name)
    path = Path(source)
    config = read_json(path, what=f"the model config {path}")
    if not isinstance(config, dict):
        raise ValueError(f"the model config {path} must hold one JSON object")
    return _read(config, where=f"the model config {path}", name=name)


def _read(given: Mapping[str, Any], *, where: str, name: str | None) -> ModelShape:
    family = check_config(given, where)
    config = {**LLAMA_DEFAULTS, **family.defaults, **given}
    _warn_of_window(config, where)

    for key in NEEDED_KEYS:
        if config.get(key) is None:
            raise ValueError(f"{where} lacks {key}")
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    shared, width = config.get("num_key_value_heads"), config.get("head_dim")
    try:
        rope_theta, rope_scaling = _read_rope(config)
        return ModelShape(
            name=name or _name(config) or family.model_type,
            vocab_size=config["vocab_size"],
            hidden_size=hidden,
            intermediate_size=config["intermediate_size"],
            num_hidden_layers=config["num_hidden_layers"],
            num_attention_heads=heads,
            num_key_value_heads=heads if shared is None else shared,
            head_dim=_divide(hidden, heads) if width is None else width,
            max_position_embeddings=config["max_position_embeddings"],
            rope_theta=rope_theta,
            rms_norm_eps=_as_float(config["rms_norm_eps"]),
            tie_word_embeddings=config["tie_word_embeddings"],
            rope_scaling=rope_scaling,
            attention_bias=family.attention_bias,
            qk_norm=family.qk_norm,
            norm_placement=family.norm_placement,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _name(config: Mapping[str, Any]) -> str:
    """The config's own name, as far as it can be printed; empty when it has none."""
    texts = (config.get(key) for key in ("_name_or_path", "name"))
    found = next((text for text in texts if isinstance(text, str) and text), "")
    return "".join(filter(str.isprintable, found))[-MAXIMUM_NAME_LENGTH:]


def _warn_of_window(config: Mapping[str, Any], where: str) -> None:
    """Windows are ignored: a longer view costs time, and takes nothing from the model."""
    window = config.get("sliding_window")
    # Qwen's window counts only when switched on; Mistral's, which has no switch, always.
    if window is None or not config.get("use_sliding_window", True):
        return
    longest = config.get("max_position_embeddings")
    if isinstance(window, int) and isinstance(longest, int) and window >= longest:
        return
    warnings.warn(
        f"{where} has sliding_window {window}: it is ignored, every token attends to all before it",
        stacklevel=5,
    )


def _read_rope(config: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Base and stretching: one object as transformers 5 writes, or two keys as older versions do.

    Where both are given they must agree, since readers differ in which one they believe.
    """
    written = [_rope_object(config, key) for key in ROPE_KEYS if config.get(key) is not None]
    written = [rope for rope in written if rope]
    thetas = {
        _rope_theta(rope["rope_theta"])
        for rope in (config, *written)
        if rope.get("rope_theta") is not None
    }
    scalings = {_read_scaling(rope) for rope in written}
    if len(thetas) > 1 or len(scalings) > 1:
        raise ValueError(
            f"rope_parameters, rope_theta and rope_scaling disagree: bases {sorted(thetas)}, "
            f"scalings {', '.join(map(str, scalings))}"
        )
    return next(iter(thetas), DEFAULT_ROPE_THETA), next(iter(scalings), None)


def _rope_theta(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"rope_theta is {str(value)[:60]!r}; a number is needed")
    return float(_as_float(value))


def _rope_object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    rope = config[key]
    if not isinstance(rope, Mapping):
        raise ValueError(f"{key} is {str(rope)[:60]!r}; an object is needed")
    if any(isinstance(inner, Mapping) for inner in rope.values()):
        raise ValueError(
            f"{key} has an object for each kind of block: it is a decoder whose blocks differ in "
            "rotary frequencies, which this library does not train"
        )
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if part not in (None, 1.0):
        raise ValueError(
            f"partial_rotary_factor is {part!r}: it is a decoder that rotates only a part of each "
            "head, which this library does not train"
        )
    return rope


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
        raise ValueError(
            f"rope scaling {kind!r} is not supported; supported: llama3, or none at all, which "
            "trains the model as it was before its context was stretched"
        )
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
    """See ``ModelShape.to_hugging_face_config``.

    The rotary base and its stretching are written twice, as transformers 5 and as older versions
    (and programs built on them) read them: those would silently assume a base of 10,000.
    """
    family = family_of(
        shape, heads_divide_hidden=shape.hidden_size % shape.num_attention_heads == 0
    )
    scaling = _write_scaling(shape.rope_scaling)
    return {
        "architectures": [family.architecture],
        "model_type": family.model_type,
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
        "rope_parameters": {
            "rope_theta": shape.rope_theta,
            **(scaling or {"rope_type": "default"}),
        },
        "rope_theta": shape.rope_theta,
        "rope_scaling": scaling,
        "tie_word_embeddings": shape.tie_word_embeddings,
        **family.written,
    }


def _write_scaling(scaling: RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    values = {field.name: getattr(scaling, field.name) for field in fields(scaling)}
    return {"rope_type": "llama3", **values}
