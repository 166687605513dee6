"""Model shapes: counted as ``transformers`` counts, read from its configs, refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.planning.model_shape import ModelShape

LLAMA = ModelShape.preset("llama-3.2-1b")


@pytest.mark.parametrize("name", ModelShape.preset_names())
def test_parameters_are_counted_as_transformers_counts_them(name: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    shape = ModelShape.preset(name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(LlamaConfig(**shape.to_hugging_face_config()))
    assert shape.parameter_count == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", ModelShape.preset_names())
def test_a_config_survives_the_round_trip(name: str) -> None:
    shape = ModelShape.preset(name)
    config = shape.to_hugging_face_config()
    assert ModelShape.from_hugging_face_config(config, name=name) == shape


def test_configs_of_older_transformers_are_read(tmp_path: Path) -> None:
    config = LLAMA.to_hugging_face_config()
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    del config["head_dim"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert ModelShape.from_hugging_face_config(path, name=LLAMA.name) == LLAMA


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"vision_config": {"x": 1}}, "multimodal"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"model_type": "mixtral"}, "mixture of experts"),
        ({"model_type": "bert"}, "an encoder"),
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "mllama"}, "multimodal"),
        ({"model_type": "mamba"}, "model_type 'mamba'.*recurrent"),
        ({"model_type": "qwen2"}, "biases on queries"),
        ({"model_type": "qwen3"}, "normalises its queries"),
        ({"model_type": "unheard"}, "model_type 'unheard'; supported: llama, mistral"),
        ({"model_type": None}, "model_type None"),
        ({"rope_parameters": [1]}, "rope_parameters.*an object is needed"),
        ({"hidden_size": 2049, "head_dim": None}, "not a whole number"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1"),
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"vocab_size": 10**30}, "vocab_size"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        ({"num_key_value_heads": 5}, "does not divide"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "yarn"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "factor"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    config = {**LLAMA.to_hugging_face_config(), **change}
    with pytest.raises(ValueError, match=words):
        ModelShape.from_hugging_face_config(config)


@pytest.mark.parametrize("content", ["", "{", "[]", '"llama"', "\x00\xff"])
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"config\.json"):
        ModelShape.from_hugging_face_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        ModelShape.from_hugging_face_config(tmp_path / "config.json")


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"llama-3\.2-1b"):
        ModelShape.preset("gpt-5")


@pytest.mark.parametrize(
    "change",
    [
        {"head_dim": 63},
        {"rope_theta": 0},
        {"rope_theta": float("inf")},
        {"rope_theta": float("nan")},
        {"rms_norm_eps": True},
        {"vocab_size": True},
        {"name": ""},
        {"rope_scaling": {"factor": 8}},
    ],
)
def test_impossible_values_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        replace(LLAMA, **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"factor": 0.5}, "factor is 0.5"),
        ({"factor": "8"}, "factor is '8'"),
        ({"low_freq_factor": 4.0}, "below high_freq_factor"),
        ({"high_freq_factor": float("nan")}, "high_freq_factor is nan"),
        ({"original_max_position_embeddings": 8192.5}, "whole number"),
        ({"original_max_position_embeddings": 0}, "original_max_position_embeddings is 0"),
    ],
)
def test_impossible_rope_scaling_is_refused(change: dict[str, Any], words: str) -> None:
    assert LLAMA.rope_scaling is not None
    with pytest.raises(ValueError, match=words):
        replace(LLAMA.rope_scaling, **change)
    config = LLAMA.to_hugging_face_config()
    config["rope_parameters"] |= change
    with pytest.raises(ValueError, match=words):
        ModelShape.from_hugging_face_config(config)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("llama-2-7b", 6_738_415_616),
        ("mistral-7b", 7_248_023_552),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-2-13b", 13_015_864_320),
        ("mistral-small-24b", 23_572_403_200),
        ("yi-34b", 34_388_917_248),
    ],
)
def test_presets_have_the_familiar_number_of_parameters(name: str, parameters: int) -> None:
    assert ModelShape.preset(name).parameter_count == parameters


def test_a_mistral_config_is_read_and_its_window_ignored_with_a_warning() -> None:
    config = {**LLAMA.to_hugging_face_config(), "model_type": "mistral", "sliding_window": None}
    assert ModelShape.from_hugging_face_config(config, name=LLAMA.name) == LLAMA
    with pytest.warns(UserWarning, match="sliding_window 4096"):
        ModelShape.from_hugging_face_config({**config, "sliding_window": 4096})
