"""Conversations to a trained model: what ``prepare_data.py --chat`` writes is trained on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import prepare_data
from tests.distributed.forked import train_ranks
from tests.training_scripts.chats import (
    CHATML,
    CONVERSATIONS,
    VOCABULARY,
    unmarked,
    write_conversations,
    write_tokenizer,
)
from tests.training_scripts.tiny import tiny_shape, tiny_spec, write_container

SHAPE = tiny_shape(vocab_size=-(-VOCABULARY // 8) * 8)
STEPS = 12


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty copies of the conversations, of which some are held out, with an answer each."""
    folder = tmp_path_factory.mktemp("chats")
    numbered = [
        [{**turn, "content": turn["content"].replace("FSx", f"FSx {i}")} for turn in conversation]
        for i in range(40)
        for conversation in CONVERSATIONS
    ]
    file = write_conversations(folder / "chats.jsonl", numbered)
    tokenizer = write_tokenizer(folder / "t", unmarked(CHATML))
    arguments = ["--input", str(file), "--output", str(folder / "out"), "--chat"]
    more = ["--tokenizer", str(tokenizer), "--validation-fraction", "0.2"]
    assert prepare_data.main([*arguments, *more]) == 0
    return folder / "out"


def test_prepared_conversations_are_learnt_alike_on_any_layout(chats: Path, tmp_path: Path) -> None:
    curves = {}
    for ranks, layout in ((1, {"shard_gpus": 1}), (2, {"shard_gpus": 2, "context_parallel": 2})):
        spec = tiny_spec(steps=STEPS, shape=SHAPE, layout=layout)
        root = write_container(tmp_path / str(ranks), spec)
        shutil.rmtree(root / "input/data/dataset")
        shutil.copytree(chats, root / "input/data/dataset")
        told = train_ranks(ranks, spec, root)[0]
        assert (told.step, told.stopped) == (STEPS, False)
        curves[ranks] = (told.series("loss"), told.series("validation_loss"))
    losses, held_out = curves[1]
    # Near the logarithm of the vocabulary at first: a mean over what counts, not over all tokens.
    assert losses[1] == pytest.approx(5.6, abs=0.3)
    assert losses[STEPS] < 0.8 * losses[1]
    assert held_out[STEPS] < 0.8 * held_out[0]
    for one, two in zip(curves[1], curves[2], strict=True):
        assert two == pytest.approx(one, abs=1e-4)


def test_a_run_on_conversations_resumes_where_it_was(chats: Path, tmp_path: Path) -> None:
    spec = tiny_spec(steps=6, shape=SHAPE)
    roots = []
    for name in ("whole", "cut"):
        roots.append(write_container(tmp_path / name, spec))
        shutil.rmtree(roots[-1] / "input/data/dataset")
        shutil.copytree(chats, roots[-1] / "input/data/dataset")
    whole = train_ranks(2, spec, roots[0])[0].series("loss")
    cut = train_ranks(2, spec, roots[1], sigterm_at={1: 3})[0].series("loss")
    rest = train_ranks(2, spec, roots[1])[0].series("loss")
    assert cut | rest == whole
    assert min(rest) == max(cut) + 1
