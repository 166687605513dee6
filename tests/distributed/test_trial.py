"""A trial for real: launcher, torchrun, two gloo ranks, three candidates, one out of memory."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cdk_blackwell
from cdk_blackwell.cli.main import app
from cdk_blackwell.planning.run_spec import RunSpec
from cdk_blackwell.planning.trial import TrialReport
from tests.distributed.test_torchrun import PATIENCE_SECONDS, Job
from tests.training_scripts.tiny import SEQUENCE_LENGTH, tiny_spec, write_container

SIZES = (1, 2, 4)
TOO_LARGE = 4
PATCH = f"""
import os

from dataclasses import replace
from cdk_blackwell.planning import trial_candidates

if "LOCAL_RANK" not in os.environ:
    trial_candidates.trial_candidates = lambda spec: [
        (spec.layout, replace(spec.recipe, micro_batch_size=size)) for size in {SIZES!r}
    ]
else:
    import torch

    backward = torch.Tensor.backward

    def limited(tensor, *arguments, **options):
        from pathlib import Path
        from cdk_blackwell.planning.run_spec import RunSpec

        run = Path(os.environ["CDKB_TRIAL_CANDIDATE"]) / "run.json"
        size = RunSpec.from_json(run.read_text()).recipe.micro_batch_size
        if size >= {TOO_LARGE} and os.environ["LOCAL_RANK"] == "1":
            # An allocation that the machine really refuses: 2**60 bytes.
            torch.empty(2**60, dtype=torch.uint8)
        return backward(tensor, *arguments, **options)

    torch.Tensor.backward = limited
"""
"""Python runs it at the start of every process: the candidates are three sizes, of which the last
asks, on rank 1, for memory that no machine has."""


def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: RunSpec) -> Job:
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(PATCH)
    constructs = Path(cdk_blackwell.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{hook}:{constructs}")
    monkeypatch.setenv("CDKB_TRIAL", "1")
    return Job(write_container(tmp_path / "ml", spec))


@pytest.mark.slow
def test_memory_that_is_not_there_loses_and_the_plan_follows_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny_spec(layout={"shard_gpus": 2})
    job = start(tmp_path, monkeypatch, spec)
    try:
        assert job.process.wait(PATIENCE_SECONDS) == 0, job.log.read_text()
    finally:
        job.end()
    path = job.root / "output" / "data" / "trial.json"
    report = TrialReport.from_json(path.read_text())
    outcomes = [candidate.outcome for candidate in report.candidates]
    assert outcomes == ["ok", "ok", "out_of_memory"], job.log.read_text()
    assert report.complete
    assert [candidate.recipe.micro_batch_size for candidate in report.candidates] == list(SIZES)
    speeds = [candidate.tokens_per_second_per_gpu or 0.0 for candidate in report.candidates]
    assert report.winner == speeds.index(max(speeds))
    assert not (job.root / "output" / "failure").exists()
    assert not list((job.root / "checkpoints").glob("step-*")), "a trial saves nothing"

    config = tmp_path / "config.json"
    config.write_text(json.dumps(hugging_face_config(spec)))
    words = ["plan", "--model", str(config), "--gpus", "2", "--measured", str(path), "--json"]
    words += ["--sequence-length", str(SEQUENCE_LENGTH)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    winner = report.candidates[report.winner]
    speed = plan["throughput"]["tokens_per_second_per_gpu"]
    assert speed == pytest.approx(winner.tokens_per_second_per_gpu)
    assert plan["micro_batch_size"] == winner.recipe.micro_batch_size
    assert plan["layout"]["shard_gpus"] == 2
    assert not any("not followed" in line for line in plan["warnings"])


@pytest.mark.slow
def test_a_stop_leaves_what_was_tried_and_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start(tmp_path, monkeypatch, tiny_spec(layout={"shard_gpus": 2}))
    try:
        job.wait_for(lambda r: r.get("event") == "trial_candidate" and r["index"] == 1)
        job.process.send_signal(signal.SIGTERM)
        assert job.process.wait(PATIENCE_SECONDS) == 0, job.log.read_text()
    finally:
        job.end()
    report = TrialReport.from_json((job.root / "output/data/trial.json").read_text())
    assert not report.complete
    assert [candidate.outcome for candidate in report.candidates] == ["ok"]
    assert report.winner == 0
    assert not (job.root / "output" / "failure").exists()


def hugging_face_config(spec: RunSpec) -> dict[str, object]:
    model = spec.model
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "_name_or_path": model.name,
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_attention_heads,
        "num_key_value_heads": model.num_key_value_heads,
        "head_dim": model.head_dim,
        "max_position_embeddings": model.max_position_embeddings,
        "rope_theta": model.rope_theta,
        "rms_norm_eps": model.rms_norm_eps,
        "tie_word_embeddings": model.tie_word_embeddings,
    }
