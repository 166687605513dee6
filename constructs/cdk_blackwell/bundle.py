"""Where the training bundle's sources lie, and which wheels its lock asks for. No ``aws_cdk``."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "requirements.lock"
LAUNCHER_FILE: Final = "launch.py"
WHEELHOUSE_FOLDER: Final = "wheelhouse"

_PACKAGE_ROOT: Final = Path(__file__).resolve().parent
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """One pinned package; any of the hashes will do."""

    name: str
    version: str
    sha256: tuple[str, ...]


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


def read_lock(text: str) -> tuple[LockedPackage, ...]:
    """Parse a hash-pinned requirements file; ValueError names a package without version or hash."""
    packages = []
    logical_lines = text.replace("\\\n", " ").splitlines()
    for line in logical_lines:
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        match = _REQUIREMENT.match(line)
        hashes = tuple(_HASH.findall(line))
        if match is None or not hashes:
            raise ValueError(
                f"{LOCK_FILE} has {line!r}; every line must pin name==version with --hash=sha256:…"
            )
        packages.append(LockedPackage(name=match["name"], version=match["version"], sha256=hashes))
    return tuple(packages)


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
