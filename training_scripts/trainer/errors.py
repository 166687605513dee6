"""Errors that carry the failure class the controller decides by.

``internal`` and ``infrastructure`` are tried again on hardware that costs hundreds of dollars an
hour, so they are kept for what another try may mend. A bug in the training script is ``user``.
"""

from __future__ import annotations

import errno
import re
import traceback
from pathlib import Path
from typing import Final

from cdk_blackwell.planning.contracts import FailureClass

_OUT_OF_MEMORY: Final = re.compile(
    r"out of memory|can't allocate memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE
)
_DETERMINISTIC: Final = re.compile(
    r"device-side assert|no kernel image|invalid device (ordinal|function)|"
    r"invalid (configuration )?argument|ncclInvalid(Usage|Argument)|cannot be multiplied|"
    r"size of tensor|not implemented for|expected scalar type|same (dtype|device)",
    re.IGNORECASE,
)
"""The same program on the same data says this again, on any machine."""
_BROKEN_PEER: Final = re.compile(
    r"TCPStore|DistStore|gloo/transport|NCCL error|nccl(System|Remote|Internal)Error|"
    r"connection (was )?(closed|reset)( by peer)?\b|connection refused|broken pipe|"
    r"client socket has timed out|timed out waiting \d+ ?ms|collective operation timeout",
    re.IGNORECASE,
)
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_NOT_WRITABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_BROKEN_STORAGE: Final = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN)


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
    error = _cause(error)
    if isinstance(error, TrainingError):
        return error.kind
    names = _names(error)
    if names & {"OutOfMemoryError", "MemoryError"}:
        return "out_of_memory"
    if isinstance(error, OSError):
        return _classify_os_error(error)
    if not isinstance(error, RuntimeError) or names & {"NotImplementedError", "RecursionError"}:
        return "user"
    text = str(error)
    if _OUT_OF_MEMORY.search(text):
        return "out_of_memory"
    if _DETERMINISTIC.search(text):
        return "user"
    if "DistError" in names or _BROKEN_PEER.search(text) or "CUDA error" in text:
        return "infrastructure"
    return "internal"


def describe(error: BaseException) -> str:
    """One line for the failure file."""
    error = _cause(error)
    if isinstance(error, TrainingError):
        return str(error)
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return f"no space is left on the disk that holds {error.filename or 'the checkpoints'}"
    if isinstance(error, OSError) and error.errno in _NOT_WRITABLE and error.filename:
        return f"{error.filename}: {error.strerror}; let the container's user read and write there"
    text = f"{type(error).__name__}: {error}"
    if classify(error) != "user":
        return text
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"the training script failed{place}, and would again: {text}"


def _cause(error: BaseException) -> BaseException:
    """What a rank met while saving or loading; the checkpoint library wraps all ranks' errors."""
    failures = getattr(error, "failures", None)
    if "CheckpointException" not in _names(error) or not failures:
        return error
    met: BaseException = failures[min(failures)][0]
    return met


def _classify_os_error(error: OSError) -> FailureClass:
    if error.errno == errno.ENOMEM:
        return "out_of_memory"
    if isinstance(error, ConnectionError | TimeoutError) or error.errno in _BROKEN_STORAGE:
        return "infrastructure"
    known = (
        FileNotFoundError,
        FileExistsError,
        PermissionError,
        IsADirectoryError,
        NotADirectoryError,
    )
    if error.errno in (*_DISK_FULL, *_NOT_WRITABLE) or isinstance(error, known):
        return "user"
    return "internal"


def _names(error: BaseException) -> set[str]:
    """Class names instead of classes: the launcher must not import torch."""
    return {kind.__name__ for kind in type(error).__mro__}
