"""Draws ``architecture.svg`` and ``life-of-a-run.svg``: ``python docs/diagrams.py``.

Positions are chosen by hand, in pixels; the rest is the same for every picture. The background is
part of the picture, so that it reads on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent
FONT = "font-family='system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif'"
INK, QUIET, LINE, PAPER = "#1f2933", "#5b6770", "#7b8794", "#ffffff"
FILLS = {
    "person": "#e8eef4",
    "control": "#e3f4f1",
    "data": "#fdf1dc",
    "compute": "#e6ecfb",
    "end": "#eef0f2",
    "good": "#e4f3e4",
    "bad": "#fbe6e4",
}
EDGES = {
    "person": "#8ba3b8",
    "control": "#2a9d8f",
    "data": "#d99a2b",
    "compute": "#5574c9",
    "end": "#9aa5b1",
    "good": "#4c9a4c",
    "bad": "#c45a4f",
}
LINE_HEIGHT = 16

Place = tuple[int, int, int, int]
"""Left, top, width, height."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A thing: its name in bold, and what to know about it below."""

    place: Place
    kind: str
    title: str
    lines: Sequence[str] = ()

    def draw(self) -> str:
        """The box with its text in the middle."""
        x, y, width, height = self.place
        middle = x + width / 2
        top = y + height / 2 - len(self.lines) * LINE_HEIGHT / 2 + 5
        text = [_text(middle, top, self.title, size=14, weight=600)]
        text += [
            _text(middle, top + LINE_HEIGHT * number, line, size=12, colour=QUIET)
            for number, line in enumerate(self.lines, 1)
        ]
        return _rectangle(self.place, fill=FILLS[self.kind], edge=EDGES[self.kind]) + "".join(text)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What belongs together: a dashed border and its name."""

    place: Place
    title: str

    def draw(self) -> str:
        """The border, with its name at the upper left."""
        x, y, *_ = self.place
        name = _text(x + 12, y + 20, self.title, size=12, weight=600, anchor="start")
        return _rectangle(self.place, fill="none", edge=LINE, dashes="5 4") + name


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """A line through points, with a head at its end."""

    points: Sequence[tuple[int, int]]
    label: str = ""
    at: tuple[int, int] = (0, 0)
    """Where the label stands."""
    both: bool = False
    """A head at the beginning too."""
    anchor: str = "middle"

    def draw(self) -> str:
        """The line, and its label on a piece of background."""
        path = " L".join(f"{x} {y}" for x, y in self.points)
        start = " marker-start='url(#head)'" if self.both else ""
        line = (
            f"<path d='M{path}' fill='none' stroke='{LINE}' stroke-width='1.6'"
            f" marker-end='url(#head)'{start}/>"
        )
        if not self.label:
            return line
        lines = self.label.split("\n")
        return line + "".join(
            _text(
                self.at[0],
                self.at[1] + number * 14,
                words,
                size=11.5,
                anchor=self.anchor,
                halo=True,
            )
            for number, words in enumerate(lines)
        )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: float,
    weight: int = 400,
    colour: str = INK,
    anchor: str = "middle",
    halo: bool = False,
) -> str:
    background = f" stroke='{PAPER}' stroke-width='4' paint-order='stroke'" if halo else ""
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' font-weight='{weight}' fill='{colour}'"
        f" text-anchor='{anchor}'{background}>{escape(words)}</text>"
    )


def _rectangle(place: Place, *, fill: str, edge: str, dashes: str = "") -> str:
    dash = f" stroke-dasharray='{dashes}'" if dashes else ""
    x, y, width, height = place
    return (
        f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='8'"
        f" fill='{fill}' stroke='{edge}' stroke-width='1.4'{dash}/>"
    )


def picture(width: int, height: int, title: str, parts: Sequence[Box | Frame | Arrow]) -> str:
    """The whole file; frames are given before what lies in them."""
    head = (
        "<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7'"
        " markerHeight='7' orient='auto-start-reverse'>"
        f"<path d='M0 0 L10 5 L0 10 z' fill='{LINE}'/></marker></defs>"
    )
    body = "\n".join(part.draw() for part in parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' role='img'"
        f" {FONT}>\n"
        f"<title>{escape(title)}</title>\n{head}\n"
        f"<rect width='{width}' height='{height}' rx='12' fill='{PAPER}'/>\n{body}\n</svg>\n"
    )


def architecture() -> str:
    """What is deployed for one job, and what flows between the parts."""
    return picture(
        1080,
        690,
        "What is deployed: a job's stack, the foundation, and a training job of SageMaker",
        [
            Frame(place=(230, 20, 830, 250), title="Stack of a job"),
            Frame(place=(230, 290, 830, 380), title="Foundation"),
            Frame(place=(475, 322, 566, 252), title="VPC: one private subnet, one zone"),
            Box(
                place=(20, 40, 170, 64),
                kind="person",
                title="cdk deploy",
                lines=["a new run_id launches"],
            ),
            Box(
                place=(20, 126, 170, 64),
                kind="person",
                title="cdk-blackwell",
                lines=["start, watch, logs, stop"],
            ),
            Box(place=(20, 212, 170, 48), kind="person", title="People"),
            Box(
                place=(260, 52, 190, 74),
                kind="control",
                title="Run controller",
                lines=["a Lambda outside the VPC", "launch, resume, stop"],
            ),
            Box(
                place=(260, 178, 190, 64),
                kind="control",
                title="Topic and dashboard",
                lines=["alarms on spend,", "progress, GPU use"],
            ),
            Box(
                place=(560, 52, 170, 74),
                kind="control",
                title="Table",
                lines=["wanted state,", "claims of attempts"],
            ),
            Box(
                place=(560, 178, 170, 64),
                kind="control",
                title="Rules",
                lines=["state changes,", "every 5 minutes"],
            ),
            Box(
                place=(850, 52, 185, 74),
                kind="compute",
                title="SageMaker",
                lines=["CreateTrainingJob", "as this job's own role"],
            ),
            Box(
                place=(500, 352, 180, 84),
                kind="data",
                title="FSx for Lustre",
                lines=["/dataset  read only", "/checkpoints  several nodes"],
            ),
            Box(
                place=(780, 352, 236, 116),
                kind="compute",
                title="ml.p6-b200.48xlarge x N",
                lines=[
                    "8 B200 each, EFA between them",
                    "bundle: launch.py, torchrun",
                    "local NVMe on one node",
                ],
            ),
            Box(place=(780, 504, 236, 48), kind="control", title="S3 gateway endpoint"),
            Box(
                place=(255, 352, 170, 64),
                kind="data",
                title="Dataset bucket",
                lines=["token shards, manifest"],
            ),
            Box(
                place=(255, 596, 385, 58),
                kind="data",
                title="Checkpoint bucket",
                lines=["run.json, bundle, checkpoints, export"],
            ),
            Box(
                place=(255, 466, 170, 56),
                kind="data",
                title="KMS key",
                lines=["encrypts all of it"],
            ),
            Arrow(points=[(190, 72), (260, 72)]),
            Arrow(points=[(190, 158), (225, 158), (225, 104), (260, 104)]),
            Arrow(points=[(450, 80), (560, 80)], label="claims first", at=(505, 72)),
            Arrow(points=[(355, 126), (355, 178)], label="tells", at=(375, 156), anchor="start"),
            Arrow(points=[(260, 228), (190, 228)]),
            Arrow(
                points=[(430, 52), (430, 36), (942, 36), (942, 52)],
                label="launches, stops",
                at=(790, 50),
            ),
            Arrow(
                points=[(942, 126), (942, 210), (730, 210)], label="state changes", at=(840, 202)
            ),
            Arrow(
                points=[(560, 210), (500, 210), (500, 108), (450, 108)],
                label="wakes",
                at=(508, 162),
                anchor="start",
            ),
            Arrow(points=[(975, 126), (975, 352)], label="starts", at=(985, 240), anchor="start"),
            Arrow(points=[(425, 384), (500, 384)], label="linked", at=(450, 378)),
            Arrow(points=[(680, 394), (780, 394)], label="mounted", at=(730, 386), both=True),
            Arrow(
                points=[(590, 436), (590, 596)],
                label="new checkpoints\nare exported",
                at=(600, 510),
                anchor="start",
            ),
            Arrow(points=[(898, 468), (898, 504)]),
            Arrow(
                points=[(898, 552), (898, 626), (640, 626)],
                label="progress.json, export,\ncheckpoints of one node",
                at=(768, 602),
            ),
        ],
    )


def life_of_a_run() -> str:
    """From a new ``run_id`` to the end, with the ways back."""
    return picture(
        1080,
        464,
        "Life of a run: claimed, launched, trained, judged, resumed within bounds or ended",
        [
            Box(
                place=(20, 40, 170, 74),
                kind="person",
                title="New run_id",
                lines=["by cdk deploy or", "cdk-blackwell start"],
            ),
            Box(
                place=(240, 40, 190, 74),
                kind="control",
                title="Freeze and claim",
                lines=["run.json and bundle in S3,", "the attempt in the table"],
            ),
            Box(
                place=(480, 40, 190, 74),
                kind="control",
                title="CreateTrainingJob",
                lines=["then: still wanted?", "if not, stop it at once"],
            ),
            Box(
                place=(720, 40, 150, 74),
                kind="compute",
                title="Waiting",
                lines=["for instances,", "images, channels"],
            ),
            Box(
                place=(910, 40, 150, 74),
                kind="compute",
                title="Training",
                lines=["from the newest", "complete checkpoint"],
            ),
            Box(
                place=(820, 200, 240, 74),
                kind="control",
                title="Why did it end?",
                lines=["status, reason and the trainer's", "own failure class"],
            ),
            Box(
                place=(470, 200, 250, 92),
                kind="control",
                title="May another attempt help?",
                lines=["a newer complete checkpoint,", "attempts left,", "money left"],
            ),
            Box(
                place=(820, 370, 240, 74),
                kind="good",
                title="Completed",
                lines=["export in Hugging Face format", "people are told"],
            ),
            Box(
                place=(470, 370, 250, 74),
                kind="bad",
                title="Ended, for a person",
                lines=["data, script, no memory left,", "or a bound is reached"],
            ),
            Box(
                place=(20, 200, 170, 92),
                kind="person",
                title="No longer wanted",
                lines=["run_id removed, stop,", "cdk destroy"],
            ),
            Box(
                place=(240, 370, 180, 74),
                kind="end",
                title="Stopped",
                lines=["after the last checkpoint", "and the interfaces"],
            ),
            Arrow(points=[(190, 77), (240, 77)]),
            Arrow(points=[(430, 77), (480, 77)]),
            Arrow(points=[(670, 77), (720, 77)]),
            Arrow(points=[(870, 77), (910, 77)]),
            Arrow(
                points=[(985, 114), (985, 200)],
                label="event, or the look\nevery 5 minutes",
                at=(975, 150),
                anchor="end",
            ),
            Arrow(points=[(940, 274), (940, 370)], label="done", at=(950, 326), anchor="start"),
            Arrow(points=[(820, 237), (720, 237)], label="may pass", at=(770, 228)),
            Arrow(
                points=[(820, 262), (770, 262), (770, 407), (720, 407)],
                label="will not pass",
                at=(770, 346),
            ),
            Arrow(points=[(595, 292), (595, 370)], label="no", at=(605, 334), anchor="start"),
            Arrow(
                points=[(470, 237), (335, 237), (335, 114)],
                label="yes: next attempt,\nsame frozen run",
                at=(345, 180),
                anchor="start",
            ),
            Arrow(
                points=[(105, 292), (105, 407), (240, 407)],
                label="SIGTERM, 120 s, save",
                at=(115, 340),
                anchor="start",
            ),
        ],
    )


def main() -> None:
    """Both pictures, beside this script."""
    for name, text in (("architecture", architecture()), ("life-of-a-run", life_of_a_run())):
        (FOLDER / f"{name}.svg").write_text(text)


if __name__ == "__main__":
    main()
