"""The training bundle of a request, as it lies in the cloud assembly beside its template."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass
from pathlib import Path

from cdk_blackwell.compliance.requests import TrainingRequest
from cdk_blackwell.compliance.templates import member
from cdk_blackwell.planning.lock import LOCK_FILE, WHEELHOUSE_FOLDER, read_lock


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """One archive."""

    path: Path

    def missing_wheels(self) -> list[str]:
        """``name==version`` of each locked package that no wheel in it provides, by content."""
        with tarfile.open(self.path) as archive:
            files = {member.name: archive.extractfile(member) for member in archive}
            lock = files.get(LOCK_FILE)
            if lock is None:
                return []
            digests = {
                hashlib.sha256(file.read()).hexdigest()
                for name, file in files.items()
                if file is not None and name.startswith(f"{WHEELHOUSE_FOLDER}/")
            }
            packages = read_lock(lock.read().decode())
        return [
            f"{package.name}=={package.version}"
            for package in packages
            if not digests.intersection(package.sha256)
        ]


def bundle_of(request: TrainingRequest) -> Bundle | None:
    """The bundle that a definition of this library names; None where it is not at hand."""
    path = request.resource.template.path
    key = member(request.definition, "bundle", "key")
    if path is None or not isinstance(key, str):
        return None
    digest = key.rsplit("/", 1)[-1].split(".")[0]
    found = sorted(path.parent.glob(f"asset.{digest}.*"))
    return Bundle(path=found[0]) if found and tarfile.is_tarfile(found[0]) else None
