"""Documents of text, JSON-lines and Parquet files, as units that are read on their own.

A unit is a text file, a stretch of a JSON-lines file or a row group of a Parquet file. Units have a
fixed order, so the stream of documents is the same however many processes read them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from preparation.errors import InputError

Format = Literal["text", "jsonl", "parquet"]
FORMATS: Final[tuple[Format, ...]] = ("text", "jsonl", "parquet")
SUFFIXES: Final[dict[str, Format]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
COMPRESSED: Final = (".gz", ".zst", ".bz2", ".xz")
STRETCH_BYTES: Final = 1 << 20
"""Of a JSON-lines file, read at once; a line belongs to the stretch in which it begins."""
FILES_PER_TASK: Final = 64
TASK_BYTES: Final = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A piece of the input that holds whole documents."""

    path: Path
    format: Format
    size: int
    """Bytes, for progress and for the tokenizer's sample."""
    start: int = 0
    """First byte of a stretch, or number of a row group."""


def find_files(inputs: Iterable[Path], include: str) -> list[Path]:
    """All matching files, without hidden folders, in a fixed order."""
    found: dict[Path, None] = {}
    for path in inputs:
        if path.is_file():
            found[path] = None
        elif path.is_dir():
            for file in _matching(path, include):
                hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
                if file.is_file() and not hidden:
                    found[file] = None
        else:
            raise InputError(f"--input {path} does not exist")
    if not found:
        raise InputError(
            f"no file matches --include {include!r} below {', '.join(map(str, inputs))}"
        )
    return list(found)


def _matching(folder: Path, include: str) -> list[Path]:
    try:
        return sorted(folder.rglob(include))
    except (ValueError, NotImplementedError) as error:
        raise InputError(
            f"--include {include!r} is no pattern of file names below a folder ({error}); give one "
            "like '*.jsonl' or 'part-*/*.txt'"
        ) from error


def find_units(files: Iterable[Path], wanted: Format | None) -> list[Unit]:
    """The files' units; ``wanted`` None takes the format from each file's suffix."""
    return [unit for path in files for unit in _units_of(path, wanted)]


def _units_of(path: Path, wanted: Format | None) -> Iterator[Unit]:
    kind = wanted or SUFFIXES.get(path.suffix.lower(), "text")
    if path.suffix.lower() in COMPRESSED:
        raise InputError(f"{path} is compressed; unpack it first, or leave it out by --include")
    size = path.stat().st_size
    if kind == "text":
        yield Unit(path=path, format=kind, size=size)
    elif kind == "jsonl":
        for start in range(0, size, STRETCH_BYTES):
            yield Unit(path=path, format=kind, size=min(STRETCH_BYTES, size - start), start=start)
    else:
        metadata = _parquet_file(path).metadata
        for number in range(metadata.num_row_groups):
            bytes_ = metadata.row_group(number).total_byte_size
            yield Unit(path=path, format=kind, size=bytes_, start=number)


def make_tasks(units: Sequence[Unit]) -> list[tuple[Unit, ...]]:
    """Neighbouring units, as many as are worth a message between processes."""
    tasks: list[tuple[Unit, ...]] = []
    task: list[Unit] = []
    for unit in units:
        full = len(task) == FILES_PER_TASK or sum(u.size for u in task) + unit.size > TASK_BYTES
        if task and full:
            tasks.append(tuple(task))
            task = []
        task.append(unit)
    return [*tasks, tuple(task)] if task else tasks


def read_documents(unit: Unit, field: str) -> Iterator[Any]:
    """The unit's documents: texts, or what ``field`` holds; None for one that is no text at all.

    InputError names the file and the line or row of a record without the field.
    """
    try:
        if unit.format == "text":
            yield _read_text(unit.path)
        elif unit.format == "jsonl":
            yield from _read_lines(unit, field)
        else:
            yield from _read_rows(unit, field)
    except OSError as error:
        raise InputError(f"{unit.path} cannot be read: {error.strerror or error}") from error


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return None


def _read_lines(unit: Unit, field: str) -> Iterator[Any]:
    with unit.path.open("rb") as source:
        # The line that crosses the border was read with the stretch before.
        if unit.start:
            source.seek(unit.start - 1)
            source.readline()
        while (start := source.tell()) < unit.start + unit.size:
            line = source.readline()
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                where = f"{unit.path}, line {_line_number(unit.path, start)}"
                raise InputError(f"{where} is not JSON: {error}") from error
            if not isinstance(record, dict) or field not in record:
                where = f"{unit.path}, line {_line_number(unit.path, start)}"
                keys = ", ".join(sorted(record)) if isinstance(record, dict) else "no object"
                raise InputError(f"{where} has no field {field!r} (it has: {keys}); give --field")
            yield record[field]


def _line_number(path: Path, position: int) -> int:
    with path.open("rb") as source:
        number = 1
        while source.tell() < position:
            source.readline()
            number += 1
    return number


def _read_rows(unit: Unit, field: str) -> Iterator[Any]:
    file = _parquet_file(unit.path)
    names = file.schema_arrow.names
    if field not in names:
        raise InputError(
            f"{unit.path} has no column {field!r} (it has: {', '.join(names)}); give --field"
        )
    try:
        yield from file.read_row_group(unit.start, columns=[field]).column(0).to_pylist()
    except ValueError as error:  # Arrow's own errors are, and so is text that is not UTF-8
        raise InputError(
            f"{unit.path}, row group {unit.start}: column {field!r} cannot be read: {error}"
        ) from error


def _parquet_file(path: Path) -> Any:
    parquet = _parquet_module()
    try:
        return parquet.ParquetFile(path)
    except Exception as error:  # pyarrow has errors of its own for each kind of damage
        raise InputError(f"{path} cannot be read as Parquet: {error}") from error


def _parquet_module() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            "reading Parquet files needs the package pyarrow, which is not installed: "
            "pip install 'cdk-blackwell[data]'"
        ) from error
    return parquet
