"""Errors that carry the failure class the controller decides by."""

from __future__ import annotations

import errno
import re

from cdk_blackwell.planning.contracts import FailureClass

_BROKEN_PEER = re.compile(
    r"connection (closed|reset|refused|was closed)|broken pipe|gloo/transport|nccl|"
    r"socket timeout|timed out|store",
    re.IGNORECASE,
)


class TrainingError(Exception):
    """An expected mistake or fault: its message is for the person who started the run."""

    def __init__(self, kind: FailureClass, message: str) -> None:
        super().__init__(message)
        self.kind: FailureClass = kind


def user_error(message: str) -> TrainingError:
    """A setting is wrong; the same run will fail again."""
    return TrainingError("user", message)


def data_error(message: str) -> TrainingError:
    """The dataset is missing, incomplete or damaged."""
    return TrainingError("data", message)


def classify(error: BaseException) -> FailureClass:
    """The failure class of any exception that ends a rank."""
    if isinstance(error, TrainingError):
        return error.kind
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"OutOfMemoryError", "MemoryError"}:
        return "out_of_memory"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "user"
    if isinstance(error, ConnectionError) or "DistError" in names:
        return "infrastructure"
    if isinstance(error, RuntimeError) and _BROKEN_PEER.search(str(error)):
        return "infrastructure"
    if isinstance(error, RuntimeError) and "CUDA error" in str(error):
        return "infrastructure"
    return "internal"


def describe(error: BaseException) -> str:
    """One line for the failure file."""
    if isinstance(error, TrainingError):
        return str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"no space is left on the disk that holds {error.filename or 'the checkpoints'}"
    return f"{type(error).__name__}: {error}"
