"""One rank runs out of memory while the other waits in a collective: all start again, smaller."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.test_torchrun import PATIENCE_SECONDS, Job
from tests.training_scripts.tiny import tiny_spec, write_container

STEP = 6
EXHAUSTED = f"""
import os

if os.environ.get("LOCAL_RANK") == "1" and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
    import torch

    backward, calls = torch.Tensor.backward, []

    def exhausted(tensor, *arguments, **options):
        calls.append(tensor)
        if len(calls) == {STEP}:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB")
        return backward(tensor, *arguments, **options)

    torch.Tensor.backward = exhausted
"""
"""Python runs it at the start of every process; a step is one backward pass here."""


@pytest.mark.slow
def test_all_ranks_start_again_with_a_smaller_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny_spec(
        steps=12,
        recipe={"micro_batch_size": 4},
        checkpoint={"interval_seconds": 1e-6},
        limits={"in_cluster_restarts": 1},
    )
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(EXHAUSTED)
    monkeypatch.setenv("PYTHONPATH", str(hook))
    job = Job(write_container(tmp_path / "ml", spec))
    try:
        assert job.process.wait(PATIENCE_SECONDS) == 0, job.log.read_text()
    finally:
        job.end()
    records, log = job.records(), job.log.read_text()
    assert "rank 1: out of memory with 4 sequences per rank and forward pass" in log
    assert "the next start uses 2" in log
    limited = [r for r in records if r.get("event") == "batch_growth_limited"]
    assert [r["micro_batch_size"] for r in limited] == [2]
    (resumed,) = (r for r in records if r.get("event") == "resumed")
    assert 0 < resumed["step"] < STEP
    # The global batch is what it was: no step is trained with fewer tokens.
    tokens = {r["step"]: r["tokens"] for r in records if "tokens" in r and "loss" in r}
    assert tokens == {
        s: s * spec.recipe.global_batch_tokens for s in range(1, spec.train_steps + 1)
    }
    assert not (job.root / "output" / "failure").exists()
