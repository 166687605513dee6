"""``cdk-blackwell vendor``: fetch the wheels that travel with the training bundle.

A job in a private subnet has no package index. What its image may lack is pinned with hashes in
``requirements.lock`` and travels as wheels for the container's Python and platform.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cdk_blackwell.bundle import LOCK_FILE, bundle_source, locked_wheels
from cdk_blackwell.cli.aws.options import AsJson
from cdk_blackwell.cli.errors import CommandError

CONTAINER_PYTHON = "3.12"
"""Python of the image pytorch:2.13-cu133-amzn2023-sagemaker."""
CONTAINER_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_28_x86_64")
"""Amazon Linux 2023 has glibc 2.34, newer than both."""


def vendor(
    directory: Annotated[
        Path, typer.Option(help="Folder to fill; jobs look for ./wheelhouse by default.")
    ] = Path("wheelhouse"),
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing on success.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch the hash-pinned wheels that the training container may lack.

    Exit codes: 0 done, 2 bad input or a wheel that cannot be fetched.
    """
    try:
        lock = bundle_source() / LOCK_FILE
        packages = locked_wheels()
    except ValueError as error:
        raise CommandError(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="cdk-blackwell-vendor-") as scratch:
        fetched = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes"),
                *("--no-deps", "--only-binary=:all:", "--implementation", "cp"),
                *("--python-version", CONTAINER_PYTHON),
                *(part for name in CONTAINER_PLATFORMS for part in ("--platform", name)),
                *("--disable-pip-version-check", "--requirement", str(lock), "--dest", scratch),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if fetched.returncode != 0:
            reason = next(
                (line for line in fetched.stderr.splitlines() if line.startswith("ERROR")),
                fetched.stderr.strip() or "pip gave no reason",
            )
            raise CommandError(f"the wheels of {lock} cannot be fetched: {reason}")
        directory.mkdir(parents=True, exist_ok=True)
        for wheel in sorted(Path(scratch).glob("*.whl")):
            shutil.move(wheel, directory / wheel.name)
    if as_json:
        wheels = sorted(path.name for path in directory.glob("*.whl"))
        typer.echo(json.dumps({"folder": str(directory), "wheels": wheels}, indent=2))
    elif not quiet:
        Console().print(f"{len(packages)} wheel(s) in {directory}", highlight=False)
