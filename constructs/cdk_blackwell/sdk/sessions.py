"""Sessions of the SDK, made from the one that found the job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

ROLE_CHECK: Final = "SAGEMAKER_VALIDATE_ROLE"
"""The SDK's own switch (sagemaker.core.helper.iam_role_resolver, 3.27)."""


def read_logs_with(session: Any) -> None:
    """Let ``TrainingJob.wait(logs=True)`` read the logs of this session's account and region.

    The SDK (3.27) makes one client of CloudWatch Logs per process, from the default credentials,
    whatever session the job came from.
    """
    from sagemaker.core.utils.logs import CloudWatchLogsClient

    client = session.client("logs")
    # Set before the first instance, so that it needs no default region, and on the instance.
    CloudWatchLogsClient.client = client
    CloudWatchLogsClient().client = client


@contextmanager
def role_as_it_is() -> Iterator[None]:
    """Without the SDK's check of a role, for the time of a ``with`` statement.

    It asks IAM whether the role may do a list of actions on every resource of the account. A role
    that is limited to one job's subnet and metrics namespace may not, and need not.
    """
    before = os.environ.get(ROLE_CHECK)
    os.environ[ROLE_CHECK] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ROLE_CHECK]
        else:
            os.environ[ROLE_CHECK] = before
