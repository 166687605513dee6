"""Patience of commands that go on for days: a lost connection is no reason to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

import typer
from botocore import exceptions

from cdk_blackwell.cli.aws.failures import THROTTLED
from cdk_blackwell.lifecycle.handler.errors import http_status

PAUSES_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Between tries; the last one is repeated. This project's choice."""
TRIES: Final = 60
"""About an hour without an answer, on top of botocore's own tries."""
SERVER_ERROR: Final = 500
"""HTTP status from which a refusal is AWS's own trouble."""

T = TypeVar("T")


def patient(
    call: Callable[[], T],
    *,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda text: typer.echo(text, err=True),
) -> T:
    """``call()``, again while the network is down, or AWS throttles or fails; else what it raises.

    The last failure is raised after ``TRIES`` tries.
    """
    for number in range(TRIES):
        try:
            return call()
        except (exceptions.ConnectionError, exceptions.HTTPClientError) as error:
            if number == TRIES - 1:
                raise
            reason = type(error).__name__
        except exceptions.ClientError as error:
            reason = error.response["Error"]["Code"]
            passes = reason in THROTTLED or http_status(error) >= SERVER_ERROR
            if not passes or number == TRIES - 1:
                raise
        pause = PAUSES_SECONDS[min(number, len(PAUSES_SECONDS) - 1)]
        say(f"no answer from AWS ({reason}); trying again in {pause:g} s")
        sleep(pause)
    raise AssertionError("the last try returns or raises")
