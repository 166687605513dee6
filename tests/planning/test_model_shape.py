"""Model shapes: counted as ``transformers`` counts, read from its configs, refused by name."""

from __future__ import annotations

import contextlib
import json
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.planning.hugging_face_families import FAMILIES
from cdk_blackwell.planning.json_text import MAXIMUM_BYTES
from cdk_blackwell.planning.model_shape import (
    MAXIMUM_DIMENSION,
    MAXIMUM_ROPE_THETA,
    ModelShape,
    RopeScaling,
)
from cdk_blackwell.planning.presets import PRESETS
from cdk_blackwell.planning.strict_json import read_dataclass

LLAMA = ModelShape.preset("llama-3.2-1b")


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_counted_as_transformers_and_the_publisher_count_them(name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = PRESETS[name].shape
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(**shape.to_hugging_face_config())
        )
    assert shape.parameter_count == sum(p.numel() for p in model.parameters())
    assert PRESETS[name].published_parameters in (shape.parameter_count, None)


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    """Any shape of any family."""
    family = draw(st.sampled_from(list(FAMILIES.values())))
    size = st.integers(min_value=1, max_value=MAXIMUM_DIMENSION)
    small = st.integers(min_value=1, max_value=64)
    kv_heads = draw(small)
    scaling = RopeScaling(
        factor=draw(st.floats(1, 64)),
        low_freq_factor=1.0,
        high_freq_factor=draw(st.floats(1.5, 64)),
        original_max_position_embeddings=draw(size),
    )
    return ModelShape(
        name=draw(st.text(st.characters(codec="utf-8"), min_size=1).filter(str.isprintable)),
        vocab_size=draw(size),
        hidden_size=draw(size),
        intermediate_size=draw(size),
        num_hidden_layers=draw(size),
        num_attention_heads=kv_heads * draw(small),
        num_key_value_heads=kv_heads,
        head_dim=2 * draw(small),
        max_position_embeddings=draw(size),
        rope_theta=draw(st.floats(1, MAXIMUM_ROPE_THETA)),
        rms_norm_eps=draw(st.floats(1e-12, 1)),
        tie_word_embeddings=draw(st.booleans()),
        rope_scaling=draw(st.sampled_from([None, scaling])),
        attention_bias=family.attention_bias,
        qk_norm=family.qk_norm,
        norm_placement=family.norm_placement,
    )


@given(shapes())
def test_every_shape_survives_the_round_trip(shape: ModelShape) -> None:
    config = json.loads(json.dumps(shape.to_hugging_face_config()))
    assert ModelShape.from_hugging_face_config(config) == shape
    assert read_dataclass(ModelShape, json.loads(json.dumps(asdict(shape))), "model") == shape


def test_the_one_shape_that_nobody_published_says_so() -> None:
    assert [name for name, preset in PRESETS.items() if preset.repository is None] == [
        "llama-3-64b"
    ]


@pytest.mark.parametrize("name", ModelShape.preset_names())
def test_a_config_survives_the_round_trip(name: str) -> None:
    shape = ModelShape.preset(name)
    config = json.loads(json.dumps(shape.to_hugging_face_config()))
    assert ModelShape.from_hugging_face_config(config, name=name) == shape


@pytest.mark.parametrize(
    ("name", "model_type", "architecture"),
    [
        ("llama-3.1-8b", "llama", "LlamaForCausalLM"),
        ("mistral-7b", "llama", "LlamaForCausalLM"),
        ("qwen2.5-7b", "qwen2", "Qwen2ForCausalLM"),
        ("qwen3-8b", "qwen3", "Qwen3ForCausalLM"),
        ("olmo-2-7b", "olmo2", "Olmo2ForCausalLM"),
    ],
)
def test_the_family_of_a_config_follows_from_the_fields(
    name: str, model_type: str, architecture: str
) -> None:
    config = ModelShape.preset(name).to_hugging_face_config()
    assert (config["model_type"], config["architectures"]) == (model_type, [architecture])


def test_a_width_that_its_heads_do_not_divide_is_written_as_mistral() -> None:
    """transformers refuses such a Llama, and Mistral is the same decoder."""
    config = replace(LLAMA, num_attention_heads=24).to_hugging_face_config()
    assert (config["model_type"], config["sliding_window"]) == ("mistral", None)
    assert ModelShape.from_hugging_face_config(config).num_attention_heads == 24


@pytest.mark.parametrize("model_type", FAMILIES)
def test_keys_left_out_mean_what_transformers_takes_them_for(model_type: str) -> None:
    from transformers import AutoConfig

    family = FAMILIES[model_type]
    least = {
        "model_type": model_type,
        "vocab_size": 1000,
        "hidden_size": 4096,
        "intermediate_size": 100,
        "num_hidden_layers": 2,
        "num_attention_heads": 64,
        "max_position_embeddings": 4096,
    }
    theirs = AutoConfig.for_model(**least)
    ours = ModelShape.from_hugging_face_config(least)
    assert ours.num_key_value_heads == theirs.num_key_value_heads
    assert ours.head_dim == getattr(theirs, "head_dim", 4096 // 64)
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert family.matches(ours)


@pytest.mark.parametrize(
    "name",
    ["qwen2.5-7b", "Qwen/Qwen2.5-7B", "Qwen 2.5 7B", "QWEN2_5-7b"],
)
def test_a_preset_is_found_by_any_usual_spelling(name: str) -> None:
    assert ModelShape.preset(name).name == "qwen2.5-7b"


def test_every_preset_is_found_by_its_own_name_and_its_repository() -> None:
    for name, preset in PRESETS.items():
        assert ModelShape.preset(name) is preset.shape
        assert ModelShape.preset(preset.repository or name) is preset.shape


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
        ({"model_type": "qwen3_moe"}, "mixture of experts"),
        ({"model_type": "glm4_moe"}, "mixture of experts"),
        ({"model_type": "qwen2_5_vl"}, "multimodal"),
        ({"model_type": "olmo3"}, "blocks differ in attention window"),
        ({"model_type": "gemma2"}, "another make"),
        ({"model_type": "unheard"}, "model_type 'unheard'; supported: llama, mistral, qwen2, qw"),
        ({"attention_bias": True}, "a bias on the attention output"),
        ({"attention_bias": True, "model_type": "qwen3"}, "a bias on the attention output"),
        ({"mlp_bias": True}, "feed-forward biases"),
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
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "rope scaling 'linear'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "rope scaling 'dynamic'"),
        ({"rope_scaling": {"type": "default"}}, "disagree.*factor=32"),
        ({"rope_theta": 1e4}, "disagree"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "blocks differ in rotary"),
        ({"partial_rotary_factor": 0.5}, "only a part of each head"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "factor"),
        ({"rope_theta": "1e4"}, "rope_theta is '1e4'; a number is needed"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0"),
        ({"head_dim": 0}, "head_dim is 0"),
        ({"head_dim": 512}, "head_dim is 512; .* up to 256"),
        ({"model_type": "xlm-roberta"}, "an encoder"),
        ({"model_type": "granitemoehybrid"}, "mixture of experts"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    config = {**LLAMA.to_hugging_face_config(), **change}
    with pytest.raises(ValueError, match=words):
        ModelShape.from_hugging_face_config(config)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=3,
)


@given(st.sampled_from(sorted(LLAMA.to_hugging_face_config())), JSON_VALUES)
def test_whatever_a_key_holds_is_read_or_refused(key: str, value: Any) -> None:
    config = {**LLAMA.to_hugging_face_config(), key: value}
    with contextlib.suppress(ValueError):  # nothing else
        shape = ModelShape.from_hugging_face_config(config)
        assert shape.parameter_count > 0
        assert shape.name.isprintable()


def test_a_name_loses_what_a_terminal_would_obey() -> None:
    config = {**LLAMA.to_hugging_face_config(), "name": "red\x1b[31m\n"}
    assert ModelShape.from_hugging_face_config(config).name == "red[31m"


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", '"llama"', "\x00\xff"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param('{"vocab_size": ' + "9" * 5000 + "}", id="digits"),
        pytest.param(" " * (MAXIMUM_BYTES + 1), id="large"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=r"config\.json"):
        ModelShape.from_hugging_face_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        ModelShape.from_hugging_face_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("llama-3.1-70b", "its name says 70B, and the largest tier is 30B-64B"),
        ("Qwen/Qwen2.5-72B-Instruct", "its name says 72B"),
        ("llama-3.1-405b", "its name says 405B"),
        ("qwen3-30b-a3b", "mixture of experts"),
        ("mixtral-8x7b", "mixture of experts"),
        ("llama-3.1-9b", "did you mean llama-3.1-8b"),
        ("olmo-2-64b", "did you mean olmo-2"),
    ],
)
def test_a_model_that_is_no_preset_is_not_taken_for_a_far_smaller_one(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"not a preset.*{hint}"):
        ModelShape.preset(name)


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
        {"attention_bias": 1},
        {"qk_norm": "heads"},
        {"norm_placement": "both"},
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


def test_a_mistral_config_is_read_and_its_window_ignored_with_a_warning() -> None:
    config = {**LLAMA.to_hugging_face_config(), "model_type": "mistral", "sliding_window": None}
    assert ModelShape.from_hugging_face_config(config, name=LLAMA.name) == LLAMA
    with pytest.warns(UserWarning, match="sliding_window 4096"):
        ModelShape.from_hugging_face_config({**config, "sliding_window": 4096})


@pytest.mark.parametrize(
    "change",
    [
        {"attention_bias": True, "qk_norm": "head"},
        {"qk_norm": "full"},
        {"norm_placement": "post"},
        {"qk_norm": "head", "norm_placement": "post"},
    ],
)
def test_a_mixture_of_families_is_refused_with_the_ones_there_are(change: dict[str, Any]) -> None:
    words = r"no family has together.*\(qwen2\).*qk_norm head.*\(qwen3\).*post \(olmo2\)"
    with pytest.raises(ValueError, match=words):
        replace(LLAMA, **change)


@pytest.mark.parametrize("name", ["qwen2.5-7b", "qwen3-8b"])
def test_a_qwen_window_counts_only_when_switched_on(name: str) -> None:
    shape = ModelShape.preset(name)
    config = {**shape.to_hugging_face_config(), "sliding_window": 4096}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ModelShape.from_hugging_face_config(config, name=name) == shape
    with pytest.warns(UserWarning, match="sliding_window 4096"):
        ModelShape.from_hugging_face_config({**config, "use_sliding_window": True})


def test_a_window_as_long_as_the_model_reads_is_no_window() -> None:
    config = {**LLAMA.to_hugging_face_config(), "model_type": "mistral"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ModelShape.from_hugging_face_config({**config, "sliding_window": 131_072})


def test_the_name_may_be_a_long_path() -> None:
    config = {**LLAMA.to_hugging_face_config(), "_name_or_path": "/models/" * 50 + "mine"}
    assert ModelShape.from_hugging_face_config(config).name.endswith("/models/mine")
