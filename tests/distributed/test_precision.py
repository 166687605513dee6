"""8-bit matrix products, emulated on CPU: the loss falls as with bf16, and nothing else changes.

How near the losses stay on real text over hundreds of steps is recorded by a benchmark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from cdk_blackwell.planning.run_spec import Precision, RunSpec
from tests.distributed.forked import Told, fork_ranks, train_rank, train_ranks
from tests.training_scripts.tiny import tiny_shape, tiny_spec, write_container
from trainer.errors import TrainingError
from trainer.model import Attention, Decoder
from trainer.parallel import World
from trainer.precision import MXFP8Linear, apply_precision, check_precision, is_eligible

SHAPE = tiny_shape(intermediate_size=64, hidden_size=64, head_dim=16)
PRECISIONS: tuple[Precision, ...] = ("bf16", "fp8", "fp8_rowwise", "mxfp8")
TOLERANCE = 0.02
"""Relative difference of the loss from bf16 over six steps; the largest seen was 0.004."""


def spec_of(precision: str, **changes: Any) -> RunSpec:
    recipe = {"precision": precision, "activation_checkpointing": "selective"}
    return tiny_spec(shape=SHAPE, recipe=recipe, layout={"shard_gpus": 2}, **changes)


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    root = tmp_path_factory.mktemp("precision")
    for precision in PRECISIONS:
        write_container(root / precision, spec_of(precision))

    def train_all(world: World) -> dict[str, Told]:
        return {p: train_rank(world, spec_of(p), root / p) for p in PRECISIONS}

    told: dict[str, Told] = fork_ranks(2, train_all)[0]
    return told


@pytest.mark.parametrize("precision", PRECISIONS[1:])
def test_the_loss_stays_near_that_of_bf16(precision: str, losses: dict[str, Told]) -> None:
    expected, found = losses["bf16"].series("loss"), losses[precision].series("loss")
    assert expected[6] < 0.9 * expected[1]
    assert found != expected, "the products must really be quantised"
    assert found == pytest.approx(expected, rel=TOLERANCE)
    assert found[1] == pytest.approx(expected[1], rel=TOLERANCE)


def test_a_resumed_run_in_8_bits_is_bit_identical(losses: dict[str, Told], tmp_path: Path) -> None:
    """Weights gathered in 8 bits are stored whole, whatever torchao wraps them in."""
    spec = spec_of("fp8", checkpoint={"export": True})
    root = write_container(tmp_path, spec)

    def stop_and_resume(world: World) -> list[Told]:
        first = train_rank(world, spec, root, 3 if world.is_first else None)
        return [first, train_rank(world, spec, root)]

    first, second = fork_ranks(2, stop_and_resume)[0]
    assert first.stopped
    assert first.series("loss") | second.series("loss") == losses["fp8"].series("loss")

    def read(world: World) -> tuple[str, bool]:
        from safetensors.torch import load_file

        tensors = load_file(root / "model" / "model.safetensors")
        name = "model.layers.0.mlp.up_proj.weight"
        return str(tensors[name].dtype), bool(tensors[name].isfinite().all())

    assert fork_ranks(1, read) == [("torch.bfloat16", True)]
    (alone,) = train_ranks(1, spec, root)
    assert alone.events("completed")[0]["step"] == 6


def in_eight_bits(model: Decoder) -> list[str]:
    plain = {name for name, module in model.named_modules() if type(module) is nn.Linear}
    names = {f"layers.0.{name}" for name, _ in model.layers[0].named_modules()}
    projections = {name for name in names if name.endswith("_proj")}
    return sorted(name.removeprefix("layers.0.") for name in projections - plain)


def test_only_projections_whose_sizes_allow_it_compute_in_8_bits() -> None:
    """Two key-value heads of 8 numbers give 16 outputs: enough for 16, not for groups of 32."""

    def convert(_: World) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for precision in PRECISIONS:
            with torch.device("meta"):
                model = Decoder(tiny_shape(intermediate_size=64))
            names = [name for name, _ in model.named_parameters()]
            count = apply_precision(model, precision, emulate=True)
            assert [name for name, _ in model.named_parameters()] == names
            assert type(model.lm_head).__name__ == "Head"
            found[precision] = (count, in_eight_bits(model))
        return found

    (found,) = fork_ranks(1, convert)
    wide = ["mlp.down_proj", "mlp.gate_proj", "mlp.up_proj", "self_attn.o_proj", "self_attn.q_proj"]
    everything = sorted([*wide, "self_attn.k_proj", "self_attn.v_proj"])
    assert found == {
        "bf16": (0, []),
        "fp8": (14, everything),
        "fp8_rowwise": (14, everything),
        "mxfp8": (10, wide),
    }


def test_the_first_and_last_blocks_can_keep_bf16() -> None:
    def converted(_: World) -> list[list[int]]:
        found = []
        for edge in (0, 1, 2, 9):
            with torch.device("meta"):
                model = Decoder(tiny_shape(intermediate_size=64, num_hidden_layers=5))
            apply_precision(model, "fp8", emulate=True, bf16_edge_blocks=edge)
            blocks = [[type(m) for m in block.modules()] for block in model.layers]
            found.append([n for n, kinds in enumerate(blocks) if Float8Linear in kinds])
        return found

    from torchao.float8.float8_linear import Float8Linear

    assert fork_ranks(1, converted) == [[[0, 1, 2, 3, 4], [1, 2, 3], [2], []]]


def test_a_run_with_bf16_at_its_ends_trains(tmp_path: Path) -> None:
    shape = tiny_shape(intermediate_size=64, hidden_size=64, head_dim=16, num_hidden_layers=3)
    curves = {}
    for edge in (0, 1):
        recipe = {"precision": "fp8", "bf16_edge_blocks": edge}
        spec = tiny_spec(shape=shape, recipe=recipe, layout={"shard_gpus": 2})
        root = write_container(tmp_path / str(edge), spec)
        curves[edge] = train_ranks(2, spec, root)[0]
    found = {edge: told.series("loss") for edge, told in curves.items()}
    assert found[0] != found[1], "other blocks must really be quantised"
    assert found[1] == pytest.approx(found[0], rel=TOLERANCE)


@pytest.mark.parametrize(
    ("sizes", "precision", "eligible"),
    [
        ((4096, 4096), "fp8", True),
        ((1024, 4096), "fp8", False),
        ((1024, 8192), "fp8", True),
        ((4100, 4096), "fp8", False),
        ((1024, 4096), "fp8_rowwise", False),
        ((14336, 4096), "fp8_rowwise", True),
        ((14352, 4096), "mxfp8", False),
        ((14336, 4096), "mxfp8", True),
    ],
)
def test_on_gpus_small_projections_stay_bf16(
    sizes: tuple[int, int], precision: Precision, eligible: bool
) -> None:
    assert is_eligible(sizes, precision, emulate=False) == eligible


@pytest.mark.parametrize(
    ("precision", "capability", "reason"),
    [
        ("mxfp8", (9, 0), "mxfp8 needs tensor cores of compute capability SM100 or later, .* SM90"),
        ("fp8", (8, 0), "SM89 or later, but this GPU is SM80"),
    ],
)
def test_a_gpu_without_the_tensor_cores_is_refused(
    precision: Precision, capability: tuple[int, int], reason: str
) -> None:
    with pytest.raises(TrainingError, match=reason) as error:
        check_precision(precision, capability)
    assert error.value.kind == "user"
    check_precision(precision, (10, 0))
    check_precision(precision, None)
    check_precision("bf16", (8, 0))


def test_a_bias_is_kept_beside_mx_products() -> None:
    """Qwen 2 has biases on query, key and value."""

    def difference(_: World) -> float:
        model = Decoder(tiny_shape(attention_bias=True, hidden_size=64, head_dim=16))
        projection = cast(Attention, model.layers[0].self_attn).q_proj
        assert projection.bias is not None
        nn.init.constant_(projection.bias, 3.0)
        apply_precision(model, "mxfp8", emulate=True)
        converted = cast(Attention, model.layers[0].self_attn).q_proj
        assert type(converted) is MXFP8Linear
        x = torch.randn(4, 64).bfloat16()
        return float((converted.bfloat16()(x) - projection(x)).abs().max())

    (found,) = fork_ranks(1, difference)
    assert found < 0.5
