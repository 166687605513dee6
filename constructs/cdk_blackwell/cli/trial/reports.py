"""Trial reports in the checkpoint bucket, and whether one of them has passed a recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.planning.contracts import TRIAL_FILE, RunLocation
from cdk_blackwell.planning.run_spec import RunSpec
from cdk_blackwell.planning.strict_json import plain
from cdk_blackwell.planning.trial import TrialCandidate, TrialReport

MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})
_DECIDED: Final = ("model_", "recipe_", "layout_")
_GROWTH: Final = "recipe_batch_growth"


def location(job: DeployedJob, run_id: str) -> RunLocation:
    """Where one run of a deployed job lives."""
    output = job.output
    return RunLocation(bucket=output.checkpoint_bucket, job=output.job, run_id=run_id)


def read_report(aws: Aws, job: DeployedJob, run_id: str) -> TrialReport | None:
    """``trial.json`` of a run; None before it is written. ValueError when it is damaged."""
    where = location(job, run_id)
    try:
        answer = aws.client("s3").get_object(Bucket=where.bucket, Key=where.key(TRIAL_FILE))
    except ClientError as error:
        if error.response["Error"]["Code"] in MISSING:
            return None
        raise
    return TrialReport.from_json(answer["Body"].read().decode())


def recipe_hash(hyperparameters: Mapping[str, str]) -> str:
    """Of model, recipe and layout, in a request's flat names: what a trial must share.

    Hexadecimal SHA-256. Length, data and limits of the run are no part of it, nor is the growth of
    the micro-batch: no candidate grows, and a run begins with the size that was tried.
    """
    decided = {
        key: value
        for key, value in hyperparameters.items()
        if key.startswith(_DECIDED) and key != _GROWTH
    }
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()


def passing_trial(
    aws: Aws, job: DeployedJob, run: Mapping[str, Any], hyperparameters: Mapping[str, str]
) -> str | None:
    """Id of a run whose trial passed this very recipe, layout and model; None without one.

    :param run: the job's ``run.json`` without ``run_id``.
    :param hyperparameters: of the request that would be sent.
    """
    wanted = recipe_hash(hyperparameters)
    for run_id in _run_ids(aws, job):
        try:
            report = read_report(aws, job, run_id)
            if report is not None and wanted in _hashes(run, report):
                return run_id
        except ValueError:
            continue  # Of another version, or of another job's values: it proves nothing here.
    return None


def _hashes(run: Mapping[str, Any], report: TrialReport) -> set[str]:
    """Of every candidate that passed."""
    return {_hash_of(run, report, each) for each in report.candidates if each.outcome == "ok"}


def _hash_of(run: Mapping[str, Any], report: TrialReport, candidate: TrialCandidate) -> str:
    spec = RunSpec.from_dict(
        {
            **run,
            "run_id": "any",
            "model": plain(asdict(report.model)),
            "recipe": plain(asdict(candidate.recipe)),
            "layout": plain(asdict(candidate.layout)),
        }
    )
    return recipe_hash(spec.hyperparameters())


def _run_ids(aws: Aws, job: DeployedJob) -> Iterator[str]:
    prefix = f"{job.output.job}/runs/"
    pages = aws.client("s3").get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=job.output.checkpoint_bucket, Prefix=prefix, Delimiter="/"):
        for each in page.get("CommonPrefixes", []):
            yield str(each["Prefix"]).removeprefix(prefix).rstrip("/")
