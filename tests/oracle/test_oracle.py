"""The oracle as a program: JSON in, JSON out, and a clear line for what it cannot count."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import Any

import pytest
import torch.distributed as dist

from cdk_blackwell.planning.contracts import EXIT_BAD_INPUT
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import default_optimizer
from cdk_blackwell.planning.run_spec import Layout
from cdk_blackwell.planning.strict_json import plain
from trainer import oracle

SHAPE = ModelShape(
    name="small",
    vocab_size=512,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)


def asked(**changes: Any) -> dict[str, Any]:
    """A tiny plan as ``plan --json`` words it; ``changes`` are fields of the recipe."""
    recipe = {
        "precision": "bf16",
        "sequence_length": 128,
        "global_batch_tokens": 128 * 2 * 5 * 2,
        "micro_batch_size": 2,
        "activation_checkpointing": "none",
        "loss_chunks": 2,
        "compile": False,
        "seed": 0,
        "batch_growth": [],
        "bf16_edge_blocks": 0,
        "optimizer": asdict(default_optimizer(SHAPE, train_steps=10)),
    }
    layout = Layout(shard_gpus=2, replicas=1, context_parallel=1, tensor_parallel=1)
    model = {key: plain(value) for key, value in asdict(SHAPE).items()}
    return {
        "model": model | {"parameters": SHAPE.parameter_count},
        "recipe": recipe | changes,
        "layout": asdict(layout),
        "gpus": 2,
    }


def ask(plan: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(plan)))
    return oracle.main()


def test_a_plan_as_json_is_answered_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(asked(), monkeypatch) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert answer["micro_batches"] == 3  # of five: the first, the last, and those between
    assert answer["allocated_gib"] == pytest.approx(sum(answer["parts_gib"].values()))
    static = 16 * SHAPE.parameter_count / 2 / oracle.GIB
    assert answer["allocated_gib"] > static
    assert "rank 0 of 2" in answer["method"]
    assert "second step, micro-batch 3 of 3: backward" in said.err
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ([], "expected one JSON object, got []"),
        ({"model": {}}, "the plan lacks key 'recipe'"),
        (asked() | {"layout": {"shard_gpus": 2}}, "layout lacks key 'context_parallel'"),
        (asked(precision="int4"), "int4"),
        (asked(micro_batch_size=3), "micro_batch_size is 3; it must divide the 10 sequences"),
        (
            asked(optimizer=asked()["recipe"]["optimizer"] | {"implementation": "foreach"}),
            "optimizer implementation foreach is over-counted by the tracker; use fused",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused_in_one_line(
    plan: Any,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ask(plan, monkeypatch) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("oracle: ")
    assert says in line


def test_a_refused_plan_leaves_no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise NotImplementedError("no such operator\non fake tensors")

    monkeypatch.setattr(oracle, "_build", fails)
    plan = oracle.Plan.from_dict(asked())
    with pytest.raises(oracle.RefusedError, match=r"bf16 .*no such operator on fake tensors"):
        oracle.measure(plan)
    assert not dist.is_initialized()


def test_keys_are_counted_where_most_of_them_are_gathered() -> None:
    """Ranks in the last place attend to the most pieces."""
    layout = Layout(shard_gpus=8, replicas=2, context_parallel=8, tensor_parallel=2, ulysses=2)
    assert oracle._busiest_rank(layout) == 3 * 2 * 2
