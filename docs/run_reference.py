"""Writes ``reference/run.md`` from the program's own tables: ``python docs/run_reference.py``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cdk_blackwell.lifecycle.handler.happenings import DETAIL, DETAIL_TYPES, EVENT_SOURCE
from cdk_blackwell.planning.contracts import (
    BUNDLE_FILE,
    CHECKPOINTS_FOLDER,
    COMPLETE_FILE,
    EXPORT_FOLDER,
    METRICS_NAMESPACE,
    PROGRESS_FILE,
    RUN_FILE,
    TAG_ATTEMPT,
    TAG_JOB,
    TAG_RUN_ID,
    TAG_STACK,
    TRIAL_FILE,
    step_folder,
)
from cdk_blackwell.planning.metrics import METRICS, RUN_METRICS

PAGE = Path(__file__).parent / "reference" / "run.md"
FILES: Mapping[str, str] = {
    RUN_FILE: "what is trained and how; frozen at launch, read strictly",
    BUNDLE_FILE: "the training code; frozen at launch",
    PROGRESS_FILE: "how far the run is; at every checkpoint and every five minutes",
    TRIAL_FILE: "what a trial measured; trials only",
    f"{CHECKPOINTS_FOLDER}/{step_folder(200)}/": "a checkpoint of torch's distributed format",
    f"{CHECKPOINTS_FOLDER}/{step_folder(200)}/{COMPLETE_FILE}": "written last: every file with its "
    "size and checksum. A checkpoint without it does not count",
    f"{EXPORT_FOLDER}/": "the model as Hugging Face safetensors, at the end",
}
TAGS: Mapping[str, str] = {
    TAG_JOB: "prefix of the job's names",
    TAG_RUN_ID: "the run",
    TAG_ATTEMPT: "number of the attempt, from 1",
    TAG_STACK: "ARN of the stack",
}


def document() -> str:
    """The page."""
    metrics = {metric.key: (metric.name, metric.unit, metric.meaning) for metric in METRICS}
    own = {metric.key: (metric.name, metric.unit, metric.meaning) for metric in RUN_METRICS}
    heads = ("Key", "CloudWatch name", "Unit", "Meaning")
    return "\n".join(
        [
            "# What a run writes and says",
            "",
            "Made from the program's own tables: `python docs/run_reference.py`.",
            "",
            "## Files",
            "",
            "In the checkpoint bucket below `<job>/runs/<run_id>/`:",
            "",
            *_table(("File", ""), ((name, text) for name, text in FILES.items())),
            "",
            "## Metrics",
            "",
            "The trainer prints these, one JSON object a line, and SageMaker files them under the "
            "training job's name:",
            "",
            *_table(heads, ((key, *rest) for key, rest in metrics.items())),
            "",
            f"The controller publishes them again every five minutes in the namespace "
            f"`{METRICS_NAMESPACE}` with the dimensions job and tier, which outlive a run's name "
            "(`job.metric(key)`), and adds:",
            "",
            *_table(heads, ((key, *rest) for key, rest in own.items())),
            "",
            "## Events",
            "",
            f"The controller tells the topic, and sends events of the source `{EVENT_SOURCE}` to "
            "the account's default EventBridge bus:",
            "",
            *_table(("Happening", "detail-type"), DETAIL_TYPES.items()),
            "",
            *_table(("Key of `detail`", ""), DETAIL.items()),
            "",
            "## Tags",
            "",
            "Training jobs carry the tags of their stack, and:",
            "",
            *_table(("Tag", ""), TAGS.items()),
            "",
        ]
    )


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """The first column is code."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| `{first}` | {' | '.join(rest)} |" for first, *rest in rows]


if __name__ == "__main__":
    PAGE.write_text(document())
