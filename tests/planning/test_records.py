"""What a run writes about itself reads back, also when another version wrote more."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_blackwell.planning.records import CompleteMarker, FileRecord, Progress, utc_timestamp

PROGRESS = Progress(
    attempt=2,
    step=40,
    tokens=4_000,
    loss=2.5,
    validation_loss=None,
    last_complete_step=30,
    time="2027-01-15T10:00:00+00:00",
)
MARKER = CompleteMarker(
    run_id="r",
    step=3,
    tokens=30,
    ranks=2,
    recipe_sha256="x",
    files={".metadata": FileRecord(bytes=5, sha256="y")},
)


def test_progress_has_exactly_the_keys_of_the_contract() -> None:
    assert set(PROGRESS.to_dict()) == {
        "schema_version",
        "attempt",
        "step",
        "tokens",
        "loss",
        "validation_loss",
        "last_complete_step",
        "time",
        "stepped_at",
        "checkpointed_at",
        "metrics",
    }


def test_progress_of_an_earlier_version_is_still_read() -> None:
    value = PROGRESS.to_dict()
    for key in ("stepped_at", "checkpointed_at", "metrics"):
        del value[key]
    assert Progress.from_dict(value) == PROGRESS


def test_a_marker_has_exactly_the_keys_of_the_contract() -> None:
    value = MARKER.to_dict()
    assert set(value) == {
        "schema_version",
        "run_id",
        "step",
        "tokens",
        "ranks",
        "recipe_sha256",
        "files",
        "micro_batch_size",
        "dataset_sha256",
        "recent_losses",
    }
    assert value["files"] == {".metadata": {"bytes": 5, "sha256": "y"}}


@pytest.mark.parametrize("record", [PROGRESS, MARKER])
def test_records_read_back_and_leave_keys_of_later_versions_alone(
    record: Progress | CompleteMarker,
) -> None:
    assert type(record).from_json(record.to_json()) == record
    assert type(record).from_dict({**record.to_dict(), "later": 1}) == record


@pytest.mark.parametrize("record", [PROGRESS, MARKER])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": "3"}, "step is '3'"),
        ({"step": None}, "step is None"),
        ({"schema_version": 2}, "schema_version 1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(
    record: Progress | CompleteMarker, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        type(record).from_dict({**record.to_dict(), **change})


LATER = (
    "stepped_at",
    "checkpointed_at",
    "metrics",
    "micro_batch_size",
    "dataset_sha256",
    "recent_losses",
)
"""Keys that the first version did not write."""


@pytest.mark.parametrize("record", [PROGRESS, MARKER])
def test_every_key_of_the_first_version_is_required(record: Progress | CompleteMarker) -> None:
    for key in set(record.to_dict()) - set(LATER):
        value = {k: v for k, v in record.to_dict().items() if k != key}
        with pytest.raises(ValueError, match=key):
            type(record).from_dict(value)


@pytest.mark.parametrize(
    "text", ["", "[1]", "null", "[" * 100_000, b"\xff", '{"schema_version": 1']
)
@pytest.mark.parametrize("kind", [Progress, CompleteMarker])
def test_what_is_no_record_is_refused(
    text: str | bytes, kind: type[Progress] | type[CompleteMarker]
) -> None:
    with pytest.raises(ValueError, match=r"\.json is not"):
        kind.from_json(text)


@pytest.mark.parametrize("record", [None, 7, {"bytes": "5", "sha256": "y"}, {"bytes": 5}])
def test_a_wrong_file_record_names_the_file(record: Any) -> None:
    with pytest.raises(ValueError, match=r"\.metadata"):
        CompleteMarker.from_dict({**MARKER.to_dict(), "files": {".metadata": record}})


def test_times_are_utc() -> None:
    assert utc_timestamp().endswith("+00:00")
