"""A picture in a file: complete or not at all, and readable without a network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.cli.errors import CommandError

SUFFIXES: Final = (".png", ".svg", ".html")
PNG_SCALE: Final = 1.25
"""Pixels per point: sharp on paper and on dense screens."""


def check_chart_file(path: Path) -> None:
    """Refuse, before anything is computed, a picture that could not be saved."""
    if path.suffix.lower() not in SUFFIXES:
        raise CommandError(
            f"--chart {path}: the name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        )
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        reason = "it is a folder" if path.is_dir() else f"{path.parent} is not a writable folder"
        raise CommandError(f"--chart {path} cannot be written: {reason}")
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ModuleNotFoundError as error:
        raise CommandError(
            f"--chart needs {error.name}: pip install 'cdk-blackwell[chart]' "
            "(in a clone: pip install --editable '.[chart]')"
        ) from error


def save_chart(specification: dict[str, Any], path: Path) -> None:
    """Convert by the file's suffix and put the result in place in one move."""
    content = _convert(specification, path.suffix.lower())
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        raise CommandError(f"--chart {path} cannot be written: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _convert(specification: dict[str, Any], suffix: str) -> bytes:
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.split(".")[:2])
    if suffix == ".png":
        return bytes(
            vl_convert.vegalite_to_png(specification, vl_version=version, scale=PNG_SCALE, ppi=72)
        )
    if suffix == ".svg":
        return str(vl_convert.vegalite_to_svg(specification, vl_version=version)).encode()
    # The JavaScript that draws it is part of the file.
    return str(vl_convert.vegalite_to_html(specification, vl_version=version, bundle=True)).encode()
