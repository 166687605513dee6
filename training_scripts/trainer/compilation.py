"""torch.compile of each block by itself: one compilation serves all blocks that are alike.

Before sharding, so that FSDP's hooks lie around what is compiled. Whatever Dynamo cannot trace
makes a block run uncompiled without an error, so a test counts the graphs of every mode in every
layout: a block is one graph, and checkpointing and attention over several ranks are inside it.
"""

from __future__ import annotations

from trainer.model import Decoder


def compile_blocks(model: Decoder, *, backend: str = "inductor") -> None:
    """Compile at each block's first call; parameters keep their names.

    :param backend: torch's name of it. Default: the one that makes kernels.
    """
    for block in model.layers:
        # Shapes change only when the batch grows, which starts compilation anew.
        block.compile(dynamic=False, backend=backend)
