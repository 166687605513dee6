"""The layout as rows of GPUs: copies of the weights, and groups that share a sequence."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.run_spec import Layout

GPU: Final = "■"
MOST_COPIES: Final = 4
"""Copies drawn; the rest look alike."""
GPUS_WIDTH: Final = 42
"""Characters for the GPUs of one copy; instances beyond them are counted."""


def layout_words(layout: Layout) -> str:
    """What every GPU holds, in a sentence."""
    copies = "one copy" if layout.replicas == 1 else f"{layout.replicas} copies"
    parts = [f"{copies} of the weights{', each' if layout.replicas > 1 else ''} over "]
    across = layout.shard_gpus * layout.tensor_parallel
    parts.append(f"{across} GPU{'s' if across > 1 else ''}")
    method = "HSDP" if layout.replicas > 1 else "FSDP"
    parts.append(f" ({method}")
    if layout.tensor_parallel > 1:
        parts.append(f", shard {layout.shard_gpus} x tensor parallel {layout.tensor_parallel}")
    return "".join(parts) + ")"


def layout_picture(layout: Layout) -> Text:
    """One line per copy of the weights, at most 60 characters wide."""
    per_copy = layout.shard_gpus * layout.tensor_parallel
    picture = Text()
    for copy in range(min(layout.replicas, MOST_COPIES)):
        first = copy * per_copy
        picture.append(f"copy {copy + 1:<3}{_nodes(first, per_copy):<14}", style="dim")
        picture.append_text(_copy(layout))
        picture.append("\n")
    hidden = layout.replicas - MOST_COPIES
    if hidden > 0:
        picture.append(f"and {hidden} more {'copies' if hidden > 1 else 'copy'} alike\n", "dim")
    picture.append_text(_legend(layout))
    picture.rstrip()
    return picture


def _nodes(first_gpu: int, gpus: int) -> str:
    first = first_gpu // P6_B200.gpus + 1
    last = (first_gpu + gpus - 1) // P6_B200.gpus + 1
    return f"node {first}" if first == last else f"nodes {first}-{last}"


def _copy(layout: Layout) -> Text:
    """The GPUs of one copy, instance by instance; brackets hold those that share a sequence."""
    per_copy = layout.shard_gpus * layout.tensor_parallel
    node = min(P6_B200.gpus, per_copy)
    nodes = -(-per_copy // node)
    group = layout.context_parallel * layout.tensor_parallel
    width = node + 2 * max(1, node // group) * (group > 1) + 1
    shown = nodes if nodes * width <= GPUS_WIDTH + 1 else (GPUS_WIDTH - len(" … 64 more")) // width
    drawn = Text()
    for index in range(shown):
        drawn.append(" " if index else "")
        for gpu in range(index * node, index * node + node):
            if group > 1 and gpu % group == 0:
                drawn.append("[")
            drawn.append(GPU, style="cyan" if (gpu // group) % 2 == 0 else "blue")
            if group > 1 and gpu % group == group - 1:
                drawn.append("]")
    if nodes > shown:
        drawn.append(f" … {nodes - shown} more", style="dim")
    return drawn


def _legend(layout: Layout) -> Text:
    if layout.context_parallel == 1 and layout.tensor_parallel == 1:
        return Text()
    shares = []
    if layout.context_parallel > 1:
        shares.append(f"share one sequence ({_context_words(layout)})")
    if layout.tensor_parallel > 1:
        shares.append(f"split each matrix in {layout.tensor_parallel}")
    return Text("[ ] GPUs that " + "\n    and ".join(shares), style="dim")


def _context_words(layout: Layout) -> str:
    gathered = layout.context_parallel // layout.ulysses
    if gathered == 1:
        return "exchanging heads"
    if layout.ulysses == 1:
        return "gathering keys and values"
    return f"{layout.ulysses} exchange heads x {gathered} gather keys"
