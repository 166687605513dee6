"""What a trial's candidate measured, left for the launcher by rank 0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MEASURED_FILE: Final = "measured.json"


class TrialRecorder:
    """Keeps the lines that tell a speed: the first covers warm-up, the second what counts."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / MEASURED_FILE
        self._lines: list[dict[str, float]] = []

    def put(self, values: Mapping[str, float]) -> None:
        """A sink for ``Reporter.also_to``."""
        if "tokens_per_second" not in values:
            return
        self._lines.append(dict(values))
        draft = self._file.with_suffix(".tmp")
        draft.write_text(json.dumps(self._lines), encoding="utf-8")
        draft.replace(self._file)
