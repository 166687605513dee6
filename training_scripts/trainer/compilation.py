"""torch.compile of each block by itself: one compilation serves all blocks that are alike.

Before sharding, so that FSDP's hooks lie around what is compiled. Whatever Dynamo cannot trace
makes a block run uncompiled without an error, so a test counts the graphs of every mode.
"""

from __future__ import annotations

import torch

from trainer.activation_checkpointing import full
from trainer.attention import causal_attention
from trainer.model import Block, Decoder


def compile_blocks(model: Decoder, *, backend: str = "inductor") -> None:
    """Compile at each block's first call; parameters keep their names.

    Attention over the tokens of several ranks is not compiled but called between two compiled
    pieces. Inside a checkpoint Dynamo makes no such break and would leave the block as it is, so
    there the checkpoint stays outside. Selective checkpointing looks at single operations, which
    it could not do from outside: with such attention its blocks run uncompiled.

    :param backend: torch's name of it. Default: the one that makes kernels.
    """
    for block in model.layers:
        assert isinstance(block, Block)
        # Shapes change only when the batch grows, which starts compilation anew.
        if block.recompute is full and block.self_attn.attend is not causal_attention:
            block._layer = torch.compile(  # type: ignore[method-assign]
                block._layer, dynamic=False, backend=backend
            )
        else:
            block.compile(dynamic=False, backend=backend)
