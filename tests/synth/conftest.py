"""The small tier's stacks, synthesised once per session and only read afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from app import build

TINY = {
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
}
"""5.0M parameters: what the demo deploys."""

IN_IMAGE = {"packages_in_image": "true"}
"""Spares the tests a wheelhouse."""


@dataclass(frozen=True, kw_only=True)
class Synthesised:
    """The foundation and the small tier's stack."""

    foundation: Template
    job: Template
    folder: Path
    """Cloud assembly."""
    stack: Any
    """The ``SmallModelStack`` itself."""


def synthesise(context: Mapping[str, Any], folder: Path) -> Synthesised:
    app = build(App(context={**IN_IMAGE, **context}, outdir=str(folder)))
    foundation = app.node.find_child("FoundationStack")
    job = app.node.find_child("SmallModelStack")
    assert isinstance(foundation, Stack)
    assert isinstance(job, Stack)
    found = Synthesised(
        foundation=Template.from_stack(foundation),
        job=Template.from_stack(job),
        folder=folder,
        stack=job,
    )
    app.synth()
    return found


@pytest.fixture(scope="session")
def default(tmp_path_factory: pytest.TempPathFactory) -> Synthesised:
    """Nothing given but the tier: llama-3.2-1b, agnostic, not launched."""
    return synthesise({"tiers": "small"}, tmp_path_factory.mktemp("default"))


@pytest.fixture(scope="session")
def tiny_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face config of a few million parameters."""
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps(TINY))
    return path


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, tiny_config: Path) -> Synthesised:
    """What the demo deploys, every value as text, as the command line gives it."""
    return synthesise(
        {
            "region": "us-west-2",
            "availability_zone": "us-west-2b",
            "model": str(tiny_config),
            "sequence_length": "256",
            "global_batch_tokens": "4096",
            "train_tokens": "819200",
            "run_id": "demo-1",
            "waive_cost_ceiling": "true",
            "precision": "fp32",
            "peak_learning_rate": "3e-3",
            "warmup_steps": "20",
            "checkpoint_interval_seconds": "20",
            "validation_interval_steps": "100",
            "log_interval_steps": "5",
            "in_cluster_restarts": "0",
            "hang_seconds": "120",
        },
        tmp_path_factory.mktemp("demo"),
    )


@pytest.fixture
def refuse(tmp_path: Path) -> Callable[..., str]:
    """Build the application with a context that is refused; gives the one line."""

    def build_and_fail(**context: str) -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - callers match the text
            build(App(context={**IN_IMAGE, **context}, outdir=str(tmp_path / "out")))
        text = str(caught.value)
        assert "\n" not in text
        return text

    return build_and_fail
