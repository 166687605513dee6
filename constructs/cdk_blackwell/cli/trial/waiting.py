"""Waiting for ``trial.json``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from cdk_blackwell.cli.aws.history import find_run
from cdk_blackwell.cli.aws.reconnect import patient
from cdk_blackwell.cli.errors import CheckFailedError, CommandError
from cdk_blackwell.cli.trial.reports import read_report
from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.planning.trial import TrialReport


def wait_for_report(
    aws: Aws,
    job: DeployedJob,
    run_id: str,
    *,
    looks: int | None,
    sleep: Callable[[], None],
    say: Callable[[str], None],
) -> TrialReport:
    """The report, once complete; of a trial that ended before, or at the last look, what there is.

    :param looks: how often to look at most. None: until the run ends.
    :raises CheckFailedError: the run ended without a report, or the report is damaged.
    :raises CommandError: it is not there after ``looks`` looks.
    """
    phase = ""
    for look in count(1):
        # The run first: a report that it wrote before it ended is then found.
        run = patient(lambda: find_run(aws, job, run_id))
        try:
            report = patient(lambda: read_report(aws, job, run_id))
        except ValueError as error:
            raise CheckFailedError(f"the report of trial {run_id!r} is damaged: {error}") from error
        # It grows with every candidate; a trial that was cut off has told what it tried.
        if report is not None and (report.complete or run.state != "running" or look == looks):
            return report
        if run.state != "running":
            reason = run.message or run.newest.reason or "no reason is recorded"
            raise CheckFailedError(
                f"trial {run_id!r} ended ({run.state}) without a report: {reason}"
            )
        if look == looks:
            raise CommandError(f"trial {run_id!r} has no report yet; it is {run.newest.secondary}")
        if run.newest.secondary != phase:
            phase = run.newest.secondary
            say(f"{run.newest.record.job_name}: {phase or 'waiting'}")
        sleep()
    raise AssertionError("the loop has no other end")
