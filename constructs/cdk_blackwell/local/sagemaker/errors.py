"""Why a job ends early."""

from __future__ import annotations

from typing import Final

FAILURE_REASON_LENGTH: Final = 1024
"""Longest FailureReason in SageMaker's model, characters."""


class JobFailedError(Exception):
    """The job cannot go on; the text becomes its FailureReason."""

    @classmethod
    def client(cls, message: str) -> JobFailedError:
        """A mistake in the request or in what it refers to (SageMaker's ``ClientError``)."""
        return cls(f"ClientError: {message}"[:FAILURE_REASON_LENGTH])


class ServerEndingError(Exception):
    """The embedded AWS is shutting down; the job's thread must let go."""


def algorithm_error(failure_text: str, exit_code: int) -> str:
    """FailureReason of a container that ended by itself with an exit code other than 0.

    The container's text is cut so that the whole stays within FAILURE_REASON_LENGTH.
    """
    tail = f", exit code: {exit_code}"
    head = f"AlgorithmError: {failure_text.strip()}"
    return head[: FAILURE_REASON_LENGTH - len(tail)] + tail
