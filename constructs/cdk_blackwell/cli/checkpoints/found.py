"""Checkpoints of a run in the checkpoint bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.cli.trial.reports import location
from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.planning.contracts import (
    CHECKPOINTS_FOLDER,
    COMPLETE_FILE,
    parse_step_folder,
)
from cdk_blackwell.planning.records import CompleteMarker


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One ``step-...`` folder."""

    step: int
    sizes: Mapping[str, int]
    """File name -> bytes, as they lie in the bucket."""
    prefix: str
    """Key prefix, with a trailing slash."""
    modified: datetime
    """Of its newest file."""
    marker: CompleteMarker | None
    problem: str
    """Why it does not count; empty when it is complete."""

    @property
    def bytes(self) -> int:
        """All files together."""
        return sum(self.sizes.values())

    @property
    def age_seconds(self) -> float:
        """Since its newest file was written."""
        return (datetime.now(UTC) - self.modified).total_seconds()


def list_checkpoints(aws: Aws, job: DeployedJob, run_id: str) -> list[Checkpoint]:
    """In the order of steps. Complete means: the marker is there, and so are all files it lists,
    in the size it lists; checksums are compared when a checkpoint is fetched."""
    where = location(job, run_id)
    root = f"{where.key(CHECKPOINTS_FOLDER)}/"
    folders: dict[str, dict[str, Any]] = {}
    pages = aws.client("s3").get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=where.bucket, Prefix=root):
        for entry in page.get("Contents", []):
            folder, slash, name = entry["Key"].removeprefix(root).partition("/")
            if slash and parse_step_folder(folder) is not None:
                folders.setdefault(folder, {})[name] = entry
    return [
        _checkpoint(aws, where.bucket, f"{root}{folder}/", entries)
        for folder, entries in sorted(folders.items())
    ]


def choose(found: list[Checkpoint], step: int | None, run_id: str) -> Checkpoint:
    """The complete checkpoint of ``step``, or the newest; CommandError where there is none."""
    complete = [each for each in found if not each.problem]
    known = ", ".join(str(each.step) for each in complete) or "none"
    if step is None and complete:
        return complete[-1]
    for each in found:
        if each.step == step:
            if each.problem:
                raise CommandError(
                    f"checkpoint {step} of run {run_id!r} is not complete: {each.problem}; "
                    f"complete are {known}"
                )
            return each
    wanted = "a complete checkpoint" if step is None else f"a checkpoint of step {step}"
    raise CommandError(f"run {run_id!r} has no {wanted.removeprefix('a ')}; complete are {known}")


def _checkpoint(
    aws: Aws, bucket: str, prefix: str, entries: Mapping[str, Mapping[str, Any]]
) -> Checkpoint:
    sizes = {name: int(entry["Size"]) for name, entry in entries.items()}
    marker, problem = None, f"{COMPLETE_FILE} is not there"
    if COMPLETE_FILE in entries:
        body = aws.client("s3").get_object(Bucket=bucket, Key=prefix + COMPLETE_FILE)["Body"]
        try:
            marker = CompleteMarker.from_json(body.read())
        except ValueError as error:
            problem = str(error)
        else:
            problem = _what_is_wrong(marker, sizes)
    step = parse_step_folder(prefix.rstrip("/").rsplit("/", 1)[-1])
    assert step is not None
    return Checkpoint(
        step=step,
        sizes=sizes,
        prefix=prefix,
        modified=max(entry["LastModified"] for entry in entries.values()),
        marker=marker,
        problem=problem,
    )


def _what_is_wrong(marker: CompleteMarker, sizes: Mapping[str, int]) -> str:
    missing = [name for name in sorted(marker.files) if name not in sizes]
    if missing:
        return f"{len(missing)} of {len(marker.files)} files are not there, first {missing[0]}"
    for name, record in sorted(marker.files.items()):
        if sizes[name] != record.bytes:
            return f"{name} has {sizes[name]} bytes, {record.bytes} are expected"
    return ""
