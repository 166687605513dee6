"""A layout is drawn so that copies of the weights and shared sequences can be counted."""

from __future__ import annotations

import pytest

from cdk_blackwell.cli.plan.layout_picture import layout_picture, layout_words
from cdk_blackwell.planning.run_spec import Layout


def layout(
    shard: int, replicas: int, context: int = 1, tensor: int = 1, ulysses: int = 1
) -> Layout:
    return Layout(
        shard_gpus=shard,
        replicas=replicas,
        context_parallel=context,
        tensor_parallel=tensor,
        ulysses=ulysses,
    )


def test_every_copy_of_the_weights_is_a_line() -> None:
    assert layout_words(layout(8, 4)) == "4 copies of the weights, each over 8 GPUs (HSDP)"
    lines = layout_picture(layout(8, 4)).plain.splitlines()
    assert [line.split() for line in lines] == [
        ["copy", str(n), "node", str(n), "■■■■■■■■"] for n in (1, 2, 3, 4)
    ]


def test_ranks_that_share_a_sequence_are_in_brackets() -> None:
    first, second, legend = layout_picture(layout(16, 2, context=4, ulysses=4)).plain.splitlines()
    assert "nodes 1-2" in first
    assert "[■■■■][■■■■] [■■■■][■■■■]" in first
    assert "nodes 3-4" in second
    assert legend == "[ ] GPUs that share one sequence (exchanging heads)"


def test_a_group_across_nodes_is_one_bracket() -> None:
    assert "[■■■■■■■■ ■■■■■■■■]" in layout_picture(layout(16, 1, context=16)).plain


def test_many_copies_and_nodes_are_counted_not_drawn() -> None:
    picture = layout_picture(layout(8, 64)).plain
    assert "and 60 more copies alike" in picture
    assert "more" in layout_picture(layout(512, 1)).plain


@pytest.mark.parametrize(
    ("shard", "context", "tensor"),
    [
        (shard, context, tensor)
        for shard in (1, 2, 4, 8, 16, 64, 512)
        for context in (1, 2, 8, 16, 512)
        for tensor in (1, 2, 8)
        if shard % context == 0 and shard * tensor <= 512
    ],
)
def test_no_line_is_too_long_for_its_column(shard: int, context: int, tensor: int) -> None:
    drawn = layout(shard, 512 // (shard * tensor), context, tensor)
    lines = layout_picture(drawn).plain.splitlines()
    assert max(map(len, lines)) <= 68
