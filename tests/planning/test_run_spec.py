"""``run.json`` is read strictly, and written so that reading gives the same run."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.planning import run_schema
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan
from cdk_blackwell.planning.run_spec import Checkpoint, Data, Limits, RunSpec

PLAN = make_plan(
    tier="small",
    model=ModelShape.preset("llama-3.2-1b"),
    sequence_length=8192,
    global_batch_tokens=1 << 20,
    train_tokens=10**9,
)
SPEC = RunSpec(
    schema_version=1,
    run_id="r1",
    job="pretrain",
    tier="small",
    model=PLAN.model,
    recipe=PLAN.recipe,
    layout=PLAN.layout,
    data=Data(channel="dataset", manifest="manifest.json", validation_sequences=64),
    train_tokens=10**9,
    checkpoint=Checkpoint(interval_seconds=1800.0, keep=2, export=True),
    limits=Limits(in_cluster_restarts=0, log_interval_steps=10, validation_interval_steps=500),
)


def changed(path: str, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(SPEC.to_dict())
    *folders, name = path.split(".")
    target = document
    for folder in folders:
        target = target[folder]
    target[name] = value
    return document


def test_reading_gives_back_what_was_written() -> None:
    assert RunSpec.from_json(SPEC.to_json()) == SPEC


def test_equal_runs_are_equal_bytes() -> None:
    assert RunSpec.from_json(SPEC.to_json()).to_json() == SPEC.to_json()


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("recipe.batchsize", 3, "unknown key 'batchsize'"),
        ("surprise", 1, "unknown key 'surprise'"),
        ("model.vocab_size", "32000", "vocab_size"),
        ("recipe.micro_batch_size", True, "micro_batch_size"),
        ("recipe.micro_batch_size", 0, "micro_batch_size"),
        ("recipe.precision", "fp4", "allowed are bf16, fp32, fp8"),
        ("recipe.activation_checkpointing", "every:0", "every:K"),
        ("recipe.global_batch_tokens", 8193, "multiple of sequence_length"),
        ("recipe.batch_growth", [64, 32], "larger than the one before"),
        ("recipe.batch_growth", [64, "128"], "batch_growth"),
        ("recipe.batch_growth", [10**9], "at most [0-9]+, the sequences of a step"),
        ("recipe.loss_chunks", 10**9, "loss_chunks is 1000000000; it must be at most"),
        (
            "recipe.optimizer.gradient_clip_norm",
            float("inf"),
            "gradient_clip_norm is inf; it must be a finite number",
        ),
        ("checkpoint.interval_seconds", float("inf"), "interval_seconds is inf"),
        ("limits.hang_seconds", float("nan"), "hang_seconds is nan"),
        ("layout.context_parallel", 3, "must divide shard_gpus 8"),
        ("layout.ulysses", 2, "must divide context_parallel 1"),
        ("recipe.optimizer.beta1", 1.0, "beta1"),
        ("checkpoint.keep", 0, "keep"),
        ("limits", [], "must be an object"),
        ("schema_version", 2, "schema_version"),
        ("run_id", "a b", "run_id"),
    ],
)
def test_a_wrong_value_is_refused_by_name(path: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RunSpec.from_dict(changed(path, value))


def test_a_missing_key_is_named() -> None:
    document = SPEC.to_dict()
    del document["recipe"]["seed"]
    with pytest.raises(ValueError, match="lacks key 'seed'"):
        RunSpec.from_dict(document)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_not_a_json_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"run\.json"):
        RunSpec.from_json(text)


def test_hyperparameters_stay_within_sagemakers_limits() -> None:
    flat = SPEC.hyperparameters()
    assert len(flat) <= 100
    assert all(len(key) <= 256 and len(value) <= 2500 for key, value in flat.items())
    assert flat["recipe_micro_batch_size"] == str(PLAN.recipe.micro_batch_size)
    assert flat["model_tie_word_embeddings"] == "true"
    assert not any("-" in key for key in flat)


def test_the_schema_in_the_repository_is_the_codes_own() -> None:
    path = Path(run_schema.__file__).with_name("run.schema.json")
    assert json.loads(path.read_text()) == run_schema.run_schema()


def test_the_schema_accepts_a_run_and_refuses_an_unknown_key() -> None:
    jsonschema.validate(SPEC.to_dict(), run_schema.run_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed("recipe.batchsize", 3), run_schema.run_schema())


def test_steps_cover_all_tokens() -> None:
    assert SPEC.train_steps * SPEC.recipe.global_batch_tokens >= SPEC.train_tokens
    assert (SPEC.train_steps - 1) * SPEC.recipe.global_batch_tokens < SPEC.train_tokens


JSON_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**31), 10**31),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def paths(document: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in document.items():
        found.append(prefix + key)
        if isinstance(value, dict):
            found += paths(value, f"{prefix}{key}.")
    return found


@given(path=st.sampled_from(paths(SPEC.to_dict())), value=JSON_VALUES)
def test_any_other_value_is_read_as_it_is_or_refused_never_misread(path: str, value: Any) -> None:
    document = changed(path, value)
    try:
        spec = RunSpec.from_dict(document)
    except ValueError:
        return
    assert spec.to_dict() == document
    assert RunSpec.from_json(spec.to_json()) == spec


@given(path=st.sampled_from(paths(SPEC.to_dict())), key=st.text(min_size=1, max_size=8))
def test_any_key_that_is_missing_or_unknown_is_refused(path: str, key: str) -> None:
    document = copy.deepcopy(SPEC.to_dict())
    *folders, name = path.split(".")
    target = document
    for folder in folders:
        target = target[folder]
    value = target.pop(name)
    with pytest.raises(ValueError, match=r"schema_version|lacks key"):
        RunSpec.from_dict(document)
    target[name] = value
    if key not in target:
        target[key] = 1
        with pytest.raises(ValueError, match="unknown key"):
            RunSpec.from_dict(document)
