"""The controller's Lambda code, staged so that equal sources give equal assets.

The function needs only the standard library and what its runtime brings (boto3), so the asset is
a copy of this package's own planning and handler modules. Beside them lies botocore's model of
SageMaker as it is installed here: new request fields never wait for the runtime's boto3.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import botocore
from aws_cdk import Stage
from constructs import Construct

from cdk_blackwell.compliance.service_model import SERVICE_MODEL

HANDLER: Final = "cdk_blackwell.lifecycle.handler.main.handler"
AWS_DATA_FOLDER: Final = "aws-data"
AWS_DATA_PATH: Final = f"/var/task/{AWS_DATA_FOLDER}"

PACKAGE: Final = "cdk_blackwell"
PARTS: Final = (
    "__init__.py",
    "_version.py",
    "planning",
    "lifecycle/__init__.py",
    "lifecycle/handler",
)
"""Paths below the package that run in Lambda: files, or folders with every file but byte code."""


def package_root() -> Path:
    """Folder of the installed ``cdk_blackwell`` package."""
    return Path(__file__).resolve().parent.parent


def source_files(root: Path, parts: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Yield ``(relative path, file)`` of ``parts`` below ``root``, sorted; no byte code."""
    for part in sorted(parts):
        path = root / part
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc":
                yield file.relative_to(root).as_posix(), file


def staging_folder(scope: Construct) -> Path:
    """Where assets that are made at synth lie: in the cloud assembly's own folder."""
    stage = Stage.of(scope)
    assert stage is not None
    return Path(stage.asset_outdir) / "staging"


def controller_files() -> list[tuple[str, Path]]:
    """``(name in the asset, file)`` of the function's code, sorted."""
    model = Path(botocore.__file__).parent / "data" / SERVICE_MODEL
    if not model.is_file():
        raise ValueError(
            f"botocore {botocore.__version__} does not bring {SERVICE_MODEL}: install a botocore "
            "of 1.44 or newer from PyPI"
        )
    sources = source_files(package_root(), PARTS)
    members = [(f"{PACKAGE}/{name}", source) for name, source in sources]
    return sorted([*members, (f"{AWS_DATA_FOLDER}/{SERVICE_MODEL}", model)])


def stage_controller(folder: Path) -> Path:
    """Lay the function's code below ``folder`` and return its own folder.

    Equal code has one path, so that the CDK hashes and copies the asset of several jobs once. What
    lies at that path is complete: it gets its name last.
    """
    files = controller_files()
    digest = sha256()
    for name, source in files:
        content = source.read_bytes()
        digest.update(f"{name} {len(content)} ".encode())
        digest.update(content)
    target = folder / f"controller-{digest.hexdigest()[:16]}"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="controller-", dir=folder))
    for name, source in files:
        _copy(source, unfinished / name)
    unfinished.chmod(0o755)
    unfinished.rename(target)
    return target


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o644)
