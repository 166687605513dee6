"""Predicted memory against what the oracle counts for the trainer's own model and sharding.

Real widths and fewer layers: the oracle's time grows with layers, its accuracy does not. Every case
is held to the bar of the whole: never low by more than a fifth of the 2 % allowed, never high by
more than 2 %, so that no mean of them can be worse.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdk_blackwell.planning.memory import GIB, MemoryEstimate
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.predictions import predict_memory
from cdk_blackwell.planning.recipes import default_optimizer
from cdk_blackwell.planning.run_spec import Layout, Recipe
from trainer.oracle import Plan, measure

LOWEST, HIGHEST = -0.004, 0.02
OPTIMIZER = default_optimizer(ModelShape.preset("llama-2-7b"), train_steps=10)
ONE_SEQUENCE = Recipe(
    precision="bf16",
    sequence_length=4096,
    global_batch_tokens=4096,
    micro_batch_size=1,
    activation_checkpointing="none",
    loss_chunks=8,
    compile=False,
    seed=0,
    optimizer=OPTIMIZER,
)
ONE_NODE = Layout(shard_gpus=8, replicas=1, context_parallel=1, tensor_parallel=1)


def case(
    model: str, *, layers: int = 3, accumulation: int = 1, sequences: int = 2, **changes: Any
) -> Plan:
    """A preset with fewer layers; ``changes`` are fields of the layout and of the recipe."""
    fields = {name: value for name, value in changes.items() if hasattr(ONE_NODE, name)}
    layout = replace(ONE_NODE, **fields)
    length = changes.get("sequence_length", ONE_SEQUENCE.sequence_length)
    recipe = replace(
        ONE_SEQUENCE,
        micro_batch_size=sequences,
        global_batch_tokens=length * sequences * accumulation * layout.data_parallel,
        **{name: value for name, value in changes.items() if name not in fields},
    )
    shape = replace(ModelShape.preset(model), num_hidden_layers=layers)
    return Plan(model=shape, layout=layout, recipe=recipe)


def compare(plan: Plan) -> MemoryEstimate:
    """Hold one prediction to the bars; returns it."""
    predicted = predict_memory(plan.model, plan.layout, plan.recipe)
    measured = measure(plan).allocated_gib
    error = predicted.allocated_gib / measured - 1
    assert LOWEST <= error <= HIGHEST, (
        f"{error:+.2%} of {measured:.2f} GiB, {predicted.peak_moment}"
    )
    assert predicted.reserved_gib >= measured
    return predicted


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            case("llama-2-7b", activation_checkpointing="selective"),
            id="selective checkpointing",
        ),
        pytest.param(
            case(
                "llama-3.1-8b",
                accumulation=3,
                reshard_after_forward=False,
                gradient_sync="step",
            ),
            id="kept weights, whole gradients",
        ),
        pytest.param(
            case("llama-3.2-1b", replicas=2, accumulation=2, activation_checkpointing="full"),
            id="tied, replicated, accumulating, full checkpointing",
        ),
        pytest.param(case("qwen2.5-7b"), id="bias"),
        pytest.param(
            case(
                "llama-3.1-8b",
                sequences=1,
                sequence_length=131_072,
                context_parallel=8,
                activation_checkpointing="full",
            ),
            id="gathered keys of 131,072 tokens",
        ),
    ],
)
def test_the_trainer_needs_what_is_predicted(plan: Plan) -> None:
    compare(plan)


def test_tensor_parallelism_needs_what_is_predicted_and_plans_keep_a_margin_beside() -> None:
    predicted = compare(case("llama-3.1-8b", layers=2, sequences=4, tensor_parallel=2))
    with_margin = predicted.reserved_gib + predicted.margin_gib
    assert predicted.margin_gib == pytest.approx(0.24 * with_margin)


def test_a_peak_in_the_optimizer_step_is_the_trackers_not_a_gpus() -> None:
    """Three whole matrices in fp32, made to work out the sharding of ``addcdiv_`` on their shape.

    The trainer's optimizer meets that shape at the head, before the embedding has its moments.
    """
    plan = case("llama-3.1-8b", layers=1, sequences=1, sequence_length=512)
    predicted = predict_memory(plan.model, plan.layout, plan.recipe)
    assert predicted.peak_moment == "optimizer step"
    matrix = 4 * plan.model.embedding_parameter_count / GIB
    too_high = predicted.allocated_gib - measure(plan).allocated_gib
    assert too_high == pytest.approx(2 * matrix / 8, rel=0.02)
    compiled = replace(plan.recipe, compile=True)
    without = predict_memory(plan.model, plan.layout, compiled)
    assert predicted.allocated_gib - without.allocated_gib > matrix


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp32", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("llama-3.1-8b", {"sequence_length": 8192}),
        ("llama-3.1-8b", {"sequence_length": 8192, "activation_checkpointing": "selective"}),
        ("llama-3.1-8b", {"sequence_length": 8192, "activation_checkpointing": "full"}),
        ("llama-3.1-8b", {"sequences": 1, "loss_chunks": 2, "accumulation": 2}),
        ("llama-3.2-1b", {"sequences": 4, "sequence_length": 8192}),
        ("llama-3.2-1b", {"activation_checkpointing": "full", "loss_chunks": 4, "accumulation": 2}),
        ("llama-2-7b", {"sequences": 4}),
        ("llama-2-7b", {"layers": 6, "activation_checkpointing": "every:2", "loss_chunks": 1}),
        ("llama-2-7b", {"layers": 9, "activation_checkpointing": "every:4"}),
    ],
)
def test_checkpointing_and_accumulation(
    model: str, changes: dict[str, Any], precision: str
) -> None:
    compare(case(model, **{"layers": 4} | changes, precision=precision))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("llama-2-7b", {"reshard_after_forward": False, "sequences": 4}),
        ("llama-2-7b", {"reshard_after_forward": False, "accumulation": 3}),
        ("llama-2-7b", {"gradient_sync": "step", "accumulation": 2}),
        (
            "llama-3.1-8b",
            {"gradient_sync": "step", "accumulation": 3, "activation_checkpointing": "selective"},
        ),
        (
            "llama-3.2-1b",
            {"gradient_sync": "step", "accumulation": 3, "reshard_after_forward": False},
        ),
        ("llama-2-7b", {"replicas": 4, "accumulation": 2}),
        ("llama-2-7b", {"replicas": 2, "sequences": 4}),
        ("llama-3.2-1b", {"shard_gpus": 1}),
        (
            "llama-3.2-1b",
            {"shard_gpus": 1, "reshard_after_forward": False, "accumulation": 2},
        ),
        ("llama-3.2-1b", {"reshard_after_forward": False, "sequences": 8, "loss_chunks": 4}),
    ],
)
def test_kept_weights_whole_gradients_and_replicas(model: str, changes: dict[str, Any]) -> None:
    compare(case(model, **{"layers": 4} | changes))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize("model", ["qwen2.5-0.5b", "qwen3-8b", "olmo-2-7b", "mistral-7b"])
def test_other_families(model: str, checkpointing: str) -> None:
    # Enough tokens that no peak lies in the optimizer step.
    compare(case(model, layers=4, sequences=8, activation_checkpointing=checkpointing))


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize(
    ("ulysses", "precision"), [(1, "bf16"), (2, "bf16"), (4, "bf16"), (4, "fp32")]
)
def test_context_parallelism(ulysses: int, precision: str, checkpointing: str) -> None:
    plan = case(
        "llama-3.1-8b",
        sequences=1,
        sequence_length=65_536,
        context_parallel=4,
        ulysses=ulysses,
        activation_checkpointing=checkpointing,
        precision=precision,
    )
    compare(plan)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"tensor_parallel": 4, "activation_checkpointing": "full"},
        {"tensor_parallel": 8, "shard_gpus": 1},
        {"tensor_parallel": 2, "gradient_sync": "step", "accumulation": 2},
    ],
)
def test_tensor_parallelism(changes: dict[str, Any]) -> None:
    compare(case("llama-3.1-8b", layers=4, sequences=4, **changes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "checkpointing"),
    [
        ("fp8", "none"),
        ("fp8", "full"),
        ("fp8_rowwise", "none"),
        ("mxfp8", "none"),
        ("mxfp8", "selective"),
    ],
)
def test_8_bits(precision: str, checkpointing: str) -> None:
    compare(
        case(
            "llama-3.1-8b",
            sequences=4,
            precision=precision,
            activation_checkpointing=checkpointing,
        )
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("checkpointing", ["none", "selective", "full", "every:2"])
def test_a_whole_7b_model_on_8_gpus(checkpointing: str) -> None:
    compare(case("llama-2-7b", layers=32, sequences=1, activation_checkpointing=checkpointing))
