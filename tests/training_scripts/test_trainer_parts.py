"""The trainer's pure parts: schedule, decay groups, metric lines."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cdk_blackwell.planning.metrics import METRICS
from cdk_blackwell.planning.run_spec import OptimizerImplementation
from tests.training_scripts.tiny import tiny_shape, tiny_spec
from trainer.activation_checkpointing import (
    apply_activation_checkpointing,
    full,
    selective,
)
from trainer.container import Container
from trainer.errors import TrainingError, classify
from trainer.export import plan_files
from trainer.layout import check_layout, layout_in_use
from trainer.metrics import Reporter, gpu_memory, model_flops_utilization
from trainer.model import Decoder
from trainer.optimizer import learning_rate, make_optimizer
from trainer.parallel import World

OLMO_2 = {"qk_norm": "full", "norm_placement": "post"}
CPU_WORLD = World(rank=0, size=2, device=torch.device("cpu"))


def test_the_learning_rate_warms_up_to_its_peak_and_falls_to_its_floor() -> None:
    settings = tiny_spec().recipe.optimizer
    rates = [learning_rate(s, total_steps=10, optimizer=settings) for s in range(1, 11)]
    assert rates[0] == pytest.approx(0.5e-2)
    assert rates[1] == max(rates) == pytest.approx(1e-2)
    assert rates[-1] == pytest.approx(1e-3)
    assert rates[1:] == sorted(rates[1:], reverse=True)


def test_weight_decay_acts_on_matrices_only() -> None:
    model = Decoder(tiny_shape())
    decayed, others = make_optimizer(model, tiny_spec().recipe.optimizer).param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert decayed["weight_decay"] == 0.1
    assert others["weight_decay"] == 0.0
    spared = {names[id(parameter)] for parameter in others["params"]}
    assert "embed_tokens.weight" in spared
    assert all("norm" in name or name == "embed_tokens.weight" for name in spared)
    assert len(decayed["params"]) + len(others["params"]) == len(names)


def test_the_model_has_the_parameters_that_planning_counts() -> None:
    for tied in (True, False):
        shape = tiny_shape(tie_word_embeddings=tied)
        count = sum(parameter.numel() for parameter in Decoder(shape).parameters())
        assert count == shape.parameter_count


@pytest.mark.parametrize(
    ("mode", "recomputed"),
    [
        ("none", [None] * 5),
        ("selective", [selective] * 5),
        ("full", [full] * 5),
        ("every:1", [full] * 5),
        ("every:2", [full, None, full, None, full]),
        ("every:3", [full, None, None, full, None]),
        ("every:9", [full, None, None, None, None]),
    ],
)
def test_every_kth_block_beginning_with_the_first_recomputes(
    mode: str, recomputed: list[object]
) -> None:
    model = Decoder(tiny_shape(num_hidden_layers=5))
    apply_activation_checkpointing(model, mode)
    assert [block.recompute for block in model.layers] == recomputed


def test_metric_lines_match_the_patterns_sagemaker_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = {metric.key: 1.5e-07 * (i + 1) for i, metric in enumerate(METRICS)}
    Reporter(CPU_WORLD).metrics(**values)
    line = capsys.readouterr().out
    for metric in METRICS:
        (found,) = re.findall(metric.regex, line)
        assert float(found) == values[metric.key]
    assert json.loads(line)["flops_convention"] == "causal"


def test_a_number_outside_the_table_is_refused() -> None:
    with pytest.raises(KeyError, match="speed"):
        Reporter(CPU_WORLD).metrics(speed=1.0)


def test_mfu_is_told_only_where_the_peak_is_known() -> None:
    spec = tiny_spec()
    assert model_flops_utilization(spec, tokens_per_second=1.0, ranks=1, peak=None) is None
    full = model_flops_utilization(spec, tokens_per_second=1e6, ranks=2, peak=1e12)
    half = model_flops_utilization(spec, tokens_per_second=1e6, ranks=4, peak=1e12)
    assert half is not None
    assert full == pytest.approx(2 * half)
    assert gpu_memory(CPU_WORLD) == {}


def test_gpus_that_do_not_match_the_plan_are_refused() -> None:
    layout = tiny_spec().layout
    used, reason = layout_in_use(layout, CPU_WORLD)
    assert (used.shard_gpus, used.replicas) == (2, 1)
    assert "2 CPU ranks" in str(reason)
    gpus = World(rank=0, size=2, device=torch.device("cuda", 0))
    with pytest.raises(Exception, match="= 8 GPUs, but 2 ranks were started") as error:
        layout_in_use(layout, gpus)
    assert classify(error.value) == "user"


@pytest.mark.parametrize(
    ("layout", "shape", "precision", "reason"),
    [
        ({"tensor_parallel": 3}, {}, "bf16", "tensor_parallel 3 does not divide all of"),
        ({"context_parallel": 4, "ulysses": 4}, {}, "bf16", "the 2 key-value heads"),
        (
            {"shard_gpus": 64, "context_parallel": 32},
            {},
            "bf16",
            "sequence_length 16 cannot be cut",
        ),
        (
            {"tensor_parallel": 2},
            OLMO_2,
            "bf16",
            "normalises as one",
        ),
        ({"tensor_parallel": 2}, {}, "fp8", "precision fp8 scales as a whole"),
        ({"context_parallel": 2, "ulysses": 1}, {}, "fp32", "has no fp32 kernel"),
    ],
)
def test_a_layout_that_does_not_divide_the_model_is_refused(
    layout: dict[str, int], shape: dict[str, Any], precision: str, reason: str
) -> None:
    spec = tiny_spec(layout=layout, shape=tiny_shape(**shape), recipe={"precision": precision})
    with pytest.raises(TrainingError, match=reason) as error:
        check_layout(spec, spec.layout, gpu=True)
    assert error.value.kind == "user"


def test_fp32_gathers_keys_on_cpu_which_has_the_kernel() -> None:
    spec = tiny_spec(layout={"context_parallel": 2}, recipe={"precision": "fp32"})
    check_layout(spec, spec.layout, gpu=False)


def test_container_paths_move_with_the_root() -> None:
    moved = Container.from_environment(
        {"CDKB_ROOT": "/x", "CDKB_CHECKPOINT_DIR": "/opt/ml/checkpoints", "CDKB_ATTEMPT": "3"}
    )
    assert moved.checkpoints == Path("/x/checkpoints")
    assert moved.channel("dataset") == Path("/x/input/data/dataset")
    assert moved.attempt == 3
    assert Container.from_environment({}).region is None
    assert Container.from_environment({"AWS_DEFAULT_REGION": "b"}).region == "b"
    assert Container.from_environment({"AWS_DEFAULT_REGION": "b", "AWS_REGION": "a"}).region == "a"
    assert Container.from_environment({}).failure_file == Path("/opt/ml/output/failure")


def test_export_files_hold_at_most_their_size() -> None:
    sizes = {"a": 4, "b": 4, "c": 9, "d": 1}
    assert plan_files(sizes, maximum_file_bytes=8) == [["a", "b"], ["c"], ["d"]]


@pytest.mark.parametrize(("implementation", "fused"), [("fused", True), ("foreach", False)])
def test_the_optimizer_is_the_one_that_the_recipe_names(
    implementation: OptimizerImplementation, fused: bool
) -> None:
    settings = replace(tiny_spec().recipe.optimizer, implementation=implementation)
    for group in make_optimizer(Decoder(tiny_shape()), settings).param_groups:
        assert (group["fused"], group["foreach"]) == (fused, not fused)
