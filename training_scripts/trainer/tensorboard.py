"""The metrics of rank 0 for TensorBoard, below the output folder that SageMaker uploads."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER: Final = "tensorboard"


class TensorBoard:
    """Writes event files by a thread of its own; a full disk costs the curves, not the run."""

    def __init__(self, writer: SummaryWriter, *, warn: Callable[..., None]) -> None:
        self._writer, self._warn = writer, warn
        self._queue: queue.SimpleQueue[tuple[int, dict[str, float]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="tensorboard", daemon=True)
        self._thread.start()

    def put(self, values: Mapping[str, float]) -> None:
        """Numbers of one metrics line, with their ``step``; never waits."""
        rest = dict(values)
        self._queue.put((int(rest.pop("step")), rest))

    def close(self) -> None:
        """Write what is left."""
        self._queue.put(None)
        self._thread.join()

    def _write(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                step, values = item
                for key, value in values.items():
                    self._writer.add_scalar(key, value, step)
                self._writer.flush()
            self._writer.close()
        except Exception as error:
            # Whatever it is: the curves are a convenience, the printed lines hold the numbers.
            self._warn("tensorboard_off", reason=f"{type(error).__name__}: {error}")


def open_tensorboard(output: Path, *, warn: Callable[..., None]) -> TensorBoard | None:
    """Write below ``output``; None, and one event, where that cannot be done."""
    try:
        from torch.utils.tensorboard import SummaryWriter

        make: Any = SummaryWriter
        return TensorBoard(make(str(output / FOLDER)), warn=warn)
    except ImportError as error:
        warn("tensorboard_off", reason=f"package tensorboard cannot be imported: {error}")
    except OSError as error:
        warn("tensorboard_off", reason=f"{output / FOLDER} cannot be written: {error}")
    return None
