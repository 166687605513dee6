"""Where the training bundle's sources lie, and which wheels its lock asks for. No ``aws_cdk``."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from cdk_blackwell.planning.lock import LOCK_FILE, WHEELHOUSE_FOLDER, LockedPackage, read_lock

__all__ = [
    "LAUNCHER_FILE",
    "LOCK_FILE",
    "WHEELHOUSE_FOLDER",
    "LockedPackage",
    "bundle_source",
    "find_wheels",
    "locked_wheels",
    "read_lock",
]

LAUNCHER_FILE: Final = "launch.py"

_PACKAGE_ROOT: Final = Path(__file__).resolve().parent


@cache
def bundle_source() -> Path:
    """Folder with ``launch.py``: in the wheel, else in the repository; ValueError if neither."""
    places = (_PACKAGE_ROOT / "_bundle", _PACKAGE_ROOT.parent.parent / "training_scripts")
    for place in places:
        if (place / LAUNCHER_FILE).is_file():
            return place
    raise ValueError(
        f"the training scripts are missing (looked for {LAUNCHER_FILE} in "
        f"{' and '.join(map(str, places))}): reinstall cdk-blackwell"
    )


def locked_wheels(source: Path | None = None) -> tuple[LockedPackage, ...]:
    """What the container installs when its image lacks it."""
    lock = (source or bundle_source()) / LOCK_FILE
    return read_lock(lock.read_text(encoding="utf-8"))


def find_wheels(wheelhouse: Path, packages: tuple[LockedPackage, ...]) -> tuple[Path, ...]:
    """The wheel of every locked package, judged by content; ValueError names what is missing."""
    by_hash = {
        hashlib.sha256(file.read_bytes()).hexdigest(): file
        for file in sorted(wheelhouse.glob("*.whl"))
    }
    found = []
    for package in packages:
        wheel = next((by_hash[digest] for digest in package.sha256 if digest in by_hash), None)
        if wheel is None:
            raise ValueError(
                f"the wheelhouse {wheelhouse} lacks {package.name}=={package.version} as locked: "
                f"run 'cdk-blackwell vendor --directory {wheelhouse}'"
            )
        found.append(wheel)
    return tuple(sorted(found))
