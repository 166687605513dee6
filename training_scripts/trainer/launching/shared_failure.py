"""The first cause of a failure, told from host to host through the shared checkpoint folder.

When one host's rank fails, the others' ranks only lose a connection, and whichever launcher ends
first decides what SageMaker shows. So the host with a cause of its own leaves it where the others
look: checkpoints of several hosts always lie on one file system.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from cdk_blackwell.planning.contracts import Failure


@dataclass(frozen=True, kw_only=True)
class SharedFailure:
    """One attempt's file; ``since`` tells it from what an earlier start of these hosts left."""

    folder: Path
    attempt: int
    host: str
    since: float
    """Seconds since the epoch at which this launcher began."""

    @property
    def path(self) -> Path:
        """Beside the checkpoints, under a name that no checkpoint has."""
        return self.folder / f".failure-of-attempt-{self.attempt}.json"

    def tell(self, failure: Failure, *, now: float) -> None:
        """Leave it for the others unless there is one already; a full or lost disk is no matter.

        The failure file of this host says the same; this one only spares people a search.
        """
        if self.read() is not None:
            return
        draft = self.path.with_name(f"{self.path.name}.{self.host}")
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            draft.write_text(
                json.dumps({"host": self.host, "time": now, "failure": failure.render()})
            )
            draft.replace(self.path)

    def read(self) -> Failure | None:
        """What another host of this start has told; None when nothing, or nothing readable."""
        try:
            value = json.loads(self.path.read_text(encoding="utf-8"))
            if value["time"] < self.since or value["host"] == self.host:
                return None
            return Failure.find(value["failure"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
