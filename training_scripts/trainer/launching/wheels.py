"""Install the locked packages that the image lacks: from the bundle's wheels, or an index."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cdk_blackwell.planning.lock import LOCK_FILE, WHEELHOUSE_FOLDER, read_lock
from trainer.launching.cluster import LaunchError
from trainer.launching.package_index import pip_environment


def is_installed(name: str) -> bool:
    """Whether any version of a distribution is there; the image's own version is respected."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def install_missing_wheels(code: Path, *, index: str | None = None) -> list[str]:
    """Install from the bundle's wheelhouse, or from ``index`` where the job names one.

    Only packages whose hashes the lock names are installed. Returns the names installed.
    """
    packages = read_lock((code / LOCK_FILE).read_text(encoding="utf-8"))
    lacking = [package for package in packages if not is_installed(package.name)]
    if not lacking:
        return []
    missing = [package.name for package in lacking]
    wheelhouse = code / WHEELHOUSE_FOLDER
    if index is None and not wheelhouse.is_dir():
        raise LaunchError(
            "user",
            f"the image lacks {', '.join(missing)} and the bundle carries no wheels: run "
            "'cdk-blackwell vendor' before the next deploy, or use an image that has them",
        )
    source = [] if index else ["--no-index", "--find-links", str(wheelhouse)]
    environment = {**os.environ, **pip_environment(index)} if index else None
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.write("".join(f"{package.requirement}\n" for package in lacking))
        wanted.flush()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
                *source,
                *("--require-hashes", "--disable-pip-version-check"),
                *("--requirement", wanted.name),
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        origin = "the packages of the index" if index else "the bundle's wheels"
        reason = next(
            (line for line in done.stderr.splitlines() if line.startswith("ERROR")), done.stderr
        )
        raise LaunchError(
            "user",
            f"{origin} for {', '.join(missing)} cannot be installed: {reason.strip()}",
        )
    return missing
