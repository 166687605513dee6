"""First code of a Lambda process: reads an order from stdin, calls the handler, writes the answer.

Runs by path, on the standard library only: the function's own zip decides what ``cdk_blackwell``
is. The rest of the environment's packages stand for what Lambda's Python runtime brings (boto3).
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any


class LambdaContext:
    """The handler's second argument."""

    def __init__(self, values: dict[str, str], timeout_seconds: float) -> None:
        self.__dict__.update(values)
        self._deadline = time.monotonic() + timeout_seconds

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is killed."""
        return max(0, int((self._deadline - time.monotonic()) * 1000))


def call(order: dict[str, Any]) -> dict[str, Any]:
    """Call the handler; an exception becomes Lambda's error object."""
    try:
        module, _, name = order["handler"].rpartition(".")
        handler = getattr(importlib.import_module(module.replace("/", ".")), name)
        payload = handler(order["event"], LambdaContext(order["context"], order["timeout"]))
        json.dumps(payload)
    except Exception as error:
        traceback.print_exc()
        payload = {
            "errorMessage": str(error),
            "errorType": type(error).__name__,
            "stackTrace": traceback.format_tb(error.__traceback__),
        }
        return {"payload": payload, "errored": True}
    return {"payload": payload, "errored": False}


def main() -> None:
    """Entry point."""
    order = json.load(sys.stdin)
    # This file's own folder is not the function's code.
    sys.path[0] = order["task"]
    Path(order["answer"]).write_text(json.dumps(call(order)))


if __name__ == "__main__":
    main()
