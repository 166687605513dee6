"""``trial.json`` is read strictly, and a trial's numbers replace the assumptions."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from cdk_blackwell.planning import trial_schema
from cdk_blackwell.planning.efficiency import Efficiency
from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.run_schema import run_schema
from cdk_blackwell.planning.throughput import estimate_throughput
from cdk_blackwell.planning.trial import TrialCandidate, TrialReport
from tests.planning.speed_cases import LLAMA_8B, a_layout, a_recipe, speed

LAYOUT = a_layout()


def candidate(
    tokens_per_second_per_gpu: float | None, micro_batch_size: int = 1, **changes: Any
) -> TrialCandidate:
    values: dict[str, Any] = {
        "outcome": "ok",
        "mfu": 0.3,
        "allocated_gib": 90.0,
        "reserved_gib": 100.0,
        "loss": 9.5,
        "message": "",
        **changes,
    }
    return TrialCandidate(
        layout=LAYOUT,
        recipe=a_recipe(LAYOUT, micro_batch_size=micro_batch_size),
        tokens_per_second_per_gpu=tokens_per_second_per_gpu,
        **values,
    )


OUT_OF_MEMORY = candidate(
    *(None, 16),
    outcome="out_of_memory",
    mfu=None,
    allocated_gib=None,
    reserved_gib=None,
    loss=None,
    message="rank 3 wanted 20 GiB more",
)
REPORT = TrialReport(
    schema_version=1,
    model=LLAMA_8B,
    gpus=8,
    complete=True,
    candidates=(candidate(10_000.0), candidate(14_000.0, 4), OUT_OF_MEMORY),
    winner=1,
    reason="fastest of those that fit",
)


def changed(path: str, value: Any) -> dict[str, Any]:
    document: Any = copy.deepcopy(REPORT.to_dict())
    target = document
    *folders, name = path.split(".")
    for folder in folders:
        target = target[int(folder) if folder.isdecimal() else folder]
    target[name] = value
    result: dict[str, Any] = document
    return result


def test_reading_gives_back_what_was_written() -> None:
    assert TrialReport.from_json(REPORT.to_json()) == REPORT


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("surprise", 1, "unknown key 'surprise'"),
        ("schema_version", 2, "run the trial again"),
        ("winner", 3, "indices of the 3 candidates"),
        ("winner", -1, "winner is -1"),
        ("winner", 2, "whose outcome is 'out_of_memory'"),
        ("winner", True, "winner"),
        ("complete", "yes", "complete"),
        ("gpus", 0, "gpus is 0"),
        ("gpus", 16, "laid out for 8 GPUs; the trial ran on 16"),
        ("candidates.0.outcome", "fine", "allowed are ok, out_of_memory, failed, hung"),
        ("candidates.0.tokens_per_second_per_gpu", None, "'ok' without tokens"),
        ("candidates.0.tokens_per_second_per_gpu", 0.0, "above 0 and finite"),
        ("candidates.0.reserved_gib", float("inf"), "reserved_gib is inf"),
        ("candidates.0.mfu", float("nan"), "mfu is nan"),
        ("candidates.2.message", "", "without a message"),
        ("candidates.0.layout.shards", 8, "unknown key 'shards'"),
        ("candidates.0.mfu", 10**400, "mfu is 1000.*no number is that large"),
        ("model.vocab_size", 0, "vocab_size"),
    ],
)
def test_a_wrong_value_is_refused_by_name(path: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TrialReport.from_dict(changed(path, value))


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "\x00"])
def test_what_is_not_a_json_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"trial\.json"):
        TrialReport.from_json(text)


def test_the_schema_in_the_repository_is_the_codes_own() -> None:
    path = Path(trial_schema.__file__).with_name("trial.schema.json")
    assert json.loads(path.read_text()) == trial_schema.trial_schema()


def test_the_schema_accepts_a_report_and_refuses_an_unknown_key() -> None:
    runs = Resource.from_contents(run_schema())
    validator = jsonschema.Draft202012Validator(
        trial_schema.trial_schema(),
        registry=Registry().with_resource("run.schema.json", runs),
    )
    validator.validate(REPORT.to_dict())
    for path in ("surprise", "candidates.0.layout.surprise"):
        assert not validator.is_valid(changed(path, 1))


def test_a_measured_efficiency_predicts_the_winner_exactly() -> None:
    winner = REPORT.candidates[1]
    measured = Efficiency.measured(REPORT)
    predicted = estimate_throughput(
        LLAMA_8B, layout=winner.layout, recipe=winner.recipe, efficiency=measured
    )
    assert predicted.tokens_per_second_per_gpu == pytest.approx(14_000)
    assert predicted.efficiency == "measured"
    assert "as measured" in predicted.assumptions[-1]


def test_what_differs_from_the_winner_is_scaled_alike() -> None:
    assumed = speed(a_layout(64)).tokens_per_second_per_gpu
    winner = speed(LAYOUT, micro_batch_size=4).tokens_per_second_per_gpu
    larger = a_layout(64)
    found = estimate_throughput(
        LLAMA_8B, layout=larger, recipe=a_recipe(larger), efficiency=Efficiency.measured(REPORT)
    )
    assert found.tokens_per_second_per_gpu == pytest.approx(assumed * 14_000 / winner)


def test_the_source_says_what_was_measured_and_how_well_one_factor_describes_it() -> None:
    line = Efficiency.measured(REPORT).source
    assert "measured in a trial run of llama-3.1-8b on 8 GPUs" in line
    assert "14,000 tokens/s" in line
    assert "the 1 other ran at" in line


def test_a_winner_faster_than_the_gpu_measures_nothing() -> None:
    report = TrialReport.from_dict(changed("candidates.1.tokens_per_second_per_gpu", 1e6))
    with pytest.raises(
        PlanError, match=r"1e\+06 tokens/s per GPU, which is \d+\.\d times the peak"
    ):
        Efficiency.measured(report)


def test_a_trial_without_a_winner_measures_nothing() -> None:
    report = replace(REPORT, winner=None, candidates=(OUT_OF_MEMORY,), reason="none fits")
    with pytest.raises(PlanError, match=r"no winner \(none fits\)"):
        Efficiency.measured(report)
