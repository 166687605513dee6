"""Code of one's own on the job's data: counts the files of its dataset, whoever wrote them."""

from __future__ import annotations

import os
from pathlib import Path

dataset = Path(os.environ["SM_CHANNEL_DATASET"])
files = [path for path in dataset.rglob("*") if path.is_file()]
size = sum(path.stat().st_size for path in files)
said = f"{len(files)} files, {size} bytes"
print(said)
Path(os.environ["SM_MODEL_DIR"], "dataset.txt").write_text(said)
