"""Which failures another try may mend, and which it would only pay for again."""

from __future__ import annotations

import errno
import traceback

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from trainer.errors import classify, data_error, describe, user_error


def os_error(number: int) -> OSError:
    return OSError(number, "words", "/x")


def wrapped(error: BaseException) -> CheckpointException:
    return CheckpointException("save", {3: (error, traceback.StackSummary())})


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("user", user_error("x")),
        ("data", data_error("x")),
        # Memory
        ("out_of_memory", torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")),
        ("out_of_memory", MemoryError()),
        ("out_of_memory", os_error(errno.ENOMEM)),
        ("out_of_memory", RuntimeError("CUDA error: out of memory")),
        ("out_of_memory", torch.AcceleratorError("CUDA error: out of memory")),
        ("out_of_memory", dist.DistBackendError("NCCL error: Cuda failure 2 'out of memory'")),
        ("out_of_memory", RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")),
        ("out_of_memory", RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling x")),
        # The script
        ("user", TypeError("unsupported operand")),
        ("user", ValueError("x")),
        ("user", AssertionError()),
        ("user", StopIteration()),
        ("user", KeyError("x")),
        ("user", IndexError("x")),
        ("user", AttributeError("x")),
        ("user", ZeroDivisionError("x")),
        ("user", ImportError("No module named 'nccl_store'")),
        ("user", NotImplementedError()),
        ("user", RecursionError()),
        ("user", FileNotFoundError(errno.ENOENT, "No such file", "/x")),
        ("user", PermissionError(errno.EACCES, "denied", "/x")),
        ("user", RuntimeError("CUDA error: device-side assert triggered")),
        ("user", torch.AcceleratorError("CUDA error: device-side assert triggered")),
        ("user", RuntimeError("CUDA error: no kernel image is available for execution")),
        ("user", RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)")),
        ("user", RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")),
        ("user", dist.DistBackendError("NCCL error: ncclInvalidUsage: Duplicate GPU detected")),
        # Machines
        ("infrastructure", RuntimeError("CUDA error: uncorrectable ECC error encountered")),
        ("infrastructure", dist.DistBackendError("NCCL error in: x.cpp: ncclSystemError")),
        ("infrastructure", dist.DistNetworkError("The client socket has timed out after 60 s")),
        ("infrastructure", dist.DistStoreError("wait timeout")),
        ("infrastructure", RuntimeError("[gloo/transport/tcp/pair.cc:525] Read error")),
        ("infrastructure", RuntimeError("Connection closed by peer [127.0.0.1]:1")),
        ("infrastructure", RuntimeError("Connection reset by peer")),
        ("infrastructure", RuntimeError("Timed out waiting 60000ms for recv operation")),
        ("infrastructure", ConnectionResetError("reset")),
        ("infrastructure", TimeoutError("x")),
        ("infrastructure", os_error(errno.EIO)),
        ("infrastructure", os_error(errno.ESTALE)),
        # Disks and unknowns
        ("user", os_error(errno.ENOSPC)),
        ("user", os_error(errno.EDQUOT)),
        ("internal", os_error(errno.EBUSY)),
        ("internal", RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")),
        # Words that once looked like a broken peer
        ("internal", RuntimeError("cannot restore the state that was stored")),
        # Saving and loading
        ("user", wrapped(os_error(errno.ENOSPC))),
        ("infrastructure", wrapped(RuntimeError("Connection reset by peer"))),
        ("user", wrapped(KeyError("layers.0"))),
    ],
)
def test_errors_have_the_class_the_controller_decides_by(kind: str, error: BaseException) -> None:
    assert classify(error) == kind
    assert describe(error)


def test_a_bug_is_said_to_be_the_scripts_with_its_place() -> None:
    try:
        torch.zeros(2).reshape("three")  # type: ignore[arg-type]
    except TypeError as error:
        text = describe(error)
    assert text.startswith("the training script failed at test_errors.py:")
    assert "TypeError: reshape()" in text


def test_a_full_disk_is_named() -> None:
    assert describe(wrapped(os_error(errno.ENOSPC))) == "no space is left on the disk that holds /x"
