"""The bundle's lock: packages the container's image may lack, pinned by version and hash.

Read at synth, where wheels are packed, and in the container, where they are installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LOCK_FILE: Final = "requirements.lock"
WHEELHOUSE_FOLDER: Final = "wheelhouse"

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """One pinned package; any of the hashes will do."""

    name: str
    version: str
    sha256: tuple[str, ...]

    @property
    def requirement(self) -> str:
        """One line that pip understands."""
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in self.sha256)
        return f"{self.name}=={self.version} {hashes}"


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
