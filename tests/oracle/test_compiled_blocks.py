"""What compiled blocks keep from forward to backward is what planning counts, byte by byte.

Which tensors a compiled block keeps is decided by torch's partitioner before any kernel is made,
from the same decompositions on every device; a backend that stops there runs on CPU. What the
kernels hold meanwhile only a GPU shows.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
import torch
from torch import Tensor

from cdk_blackwell.planning.activations import BlockActivations, block_activations
from tests.distributed.forked import cpu_meshes, fork_ranks
from tests.training_scripts.tiny import tiny_shape
from trainer.activation_checkpointing import apply_activation_checkpointing
from trainer.compilation import compile_blocks
from trainer.model import Decoder
from trainer.parallel import World
from trainer.sharding import share_sequences

LENGTH: Final = 512
MODES: Final = ("none", "selective", "full")
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "Llama": {},
    "Qwen 3": {"qk_norm": "head"},
    "OLMo 2": {"qk_norm": "full", "norm_placement": "post"},
}
LAYOUTS: Final[dict[str, dict[str, int]]] = {
    "exchanging heads": {"shard_gpus": 2, "context_parallel": 2, "ulysses": 2},
    "gathering keys": {"shard_gpus": 2, "context_parallel": 2},
}


def kept_and_predicted(
    world: World, mode: str, *, layout: dict[str, int] | None = None, **changes: Any
) -> tuple[int, BlockActivations]:
    """Bytes that one compiled bf16 block keeps, and planning's account of it."""
    torch.compiler.reset()
    shape = tiny_shape(
        hidden_size=256,
        intermediate_size=640,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=32,
        num_hidden_layers=1,
        **changes,
    )
    model = Decoder(shape).bfloat16()
    ranks = layout["context_parallel"] if layout else 1
    ulysses = layout.get("ulysses", 1) if layout else 1
    if layout:
        share_sequences(model, cpu_meshes(world, **layout).context)
    apply_activation_checkpointing(model, mode)
    compile_blocks(model, backend="aot_eager_decomp_partition")
    tokens = LENGTH // ranks
    model.rotary.prepare(tokens, torch.device("cpu"))
    tables = (model.rotary.cos_SD, model.rotary.sin_SD)
    not_kept = {place(tensor) for tensor in (*model.parameters(), *tables)}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        # A checkpoint also keeps the state of the random generator, in bytes.
        if tensor.dtype is not torch.uint8 and place(tensor) not in not_kept:
            kept[place(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.randn(1, tokens, shape.hidden_size, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.layers[0](x).sum()
    predicted = block_activations(
        shape,
        tokens=tokens,
        sequence_length=LENGTH,
        width=2,
        precision="bf16",
        compiled=True,
        context_parallel=ranks,
        ulysses=ulysses,
    )
    return sum(kept.values()), predicted


def place(tensor: Tensor) -> int:
    """Where its memory begins."""
    return tensor.untyped_storage().data_ptr()


def surplus(kept: int, predicted: BlockActivations, mode: str) -> float:
    """Bytes predicted beyond what is kept; the rotary table is this trainer's only once."""
    return predicted.saved(mode) - predicted.rotary - kept


@pytest.mark.parametrize(
    "shape", ["Llama", pytest.param("Qwen 3", marks=pytest.mark.slow), "OLMo 2"]
)
def test_a_compiled_block_keeps_what_is_predicted(shape: str) -> None:
    def measure(world: World) -> list[tuple[int, BlockActivations]]:
        return [kept_and_predicted(world, mode, **SHAPES[shape]) for mode in MODES]

    for mode, (kept, predicted) in zip(MODES, fork_ranks(1, measure)[0], strict=True):
        # The last product is dropped where only a sum follows it, and counted all the same.
        dropped = predicted.hidden if mode == "selective" and not predicted.post_norm else 0
        assert surplus(kept, predicted, mode) == dropped, mode


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_compiled_block_that_shares_sequences_keeps_no_more(layout: str) -> None:
    def measure(world: World) -> list[tuple[int, BlockActivations]]:
        return [kept_and_predicted(world, mode, layout=LAYOUTS[layout]) for mode in MODES]

    for mode, (kept, predicted) in zip(MODES, fork_ranks(2, measure)[0], strict=True):
        # At most the output in a second order and the last product come on top.
        assert 0 <= surplus(kept, predicted, mode) <= predicted.exchanged + predicted.hidden, mode
