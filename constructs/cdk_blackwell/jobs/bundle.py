"""The training bundle: one archive that depends on nothing but the content of its files."""

from __future__ import annotations

import gzip
import io
import tarfile
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from cdk_blackwell.bundle import (
    WHEELHOUSE_FOLDER,
    bundle_source,
    find_wheels,
    locked_wheels,
)
from cdk_blackwell.infrastructure.package_index import PackageIndex
from cdk_blackwell.lifecycle.asset import PACKAGE, package_root, source_files, staging_folder
from cdk_blackwell.planning.contracts import BUNDLE_FILE

PLANNING_PARTS: Final = ("__init__.py", "_version.py", "planning")
"""What of this package travels: the trainer's recipe and memory code is this very code."""

_IGNORED_SUFFIXES: Final = {".pyc", ".pyo"}
_IGNORED_FOLDERS: Final = {"__pycache__", WHEELHOUSE_FOLDER}


def resolve_wheels(
    *,
    wheelhouse: str | None,
    packages_in_image: bool,
    package_index: PackageIndex | None = None,
    source: Path | None = None,
) -> tuple[Path, ...]:
    """The wheels to carry, or none when the packages are in the image or come from an index.

    ``wheelhouse`` None means a folder of that name in the working directory. ValueError says how to
    go on.
    """
    if package_index is not None:
        if wheelhouse is not None or packages_in_image:
            other = "packages_in_image" if packages_in_image else f"wheelhouse {wheelhouse!r}"
            raise ValueError(
                f"package_index and {other} are both given: the packages have one source"
            )
        return ()
    if packages_in_image:
        if wheelhouse is not None:
            raise ValueError(
                f"wheelhouse {wheelhouse!r} and packages_in_image are both given: "
                "give the wheelhouse, or say that the image holds the packages"
            )
        return ()
    packages = locked_wheels(source)
    if not packages:
        return ()
    folder = Path(wheelhouse if wheelhouse is not None else WHEELHOUSE_FOLDER)
    if not folder.is_dir():
        names = ", ".join(f"{package.name}=={package.version}" for package in packages)
        raise ValueError(
            f"the wheelhouse {folder} is missing, and a job in a private subnet cannot install "
            f"{names}: run 'cdk-blackwell vendor --directory {folder}', set packages_in_image when "
            "your image holds them, or give package_index when the subnet reaches one"
        )
    return find_wheels(folder, packages)


def bundle_members(
    *, wheels: tuple[Path, ...], source: Path | None = None
) -> list[tuple[str, Path]]:
    """``(name in the archive, file)`` of everything in the bundle, sorted by name."""
    root = source or bundle_source()
    members = [
        (file.relative_to(root).as_posix(), file)
        for file in root.rglob("*")
        if file.is_file()
        and file.suffix not in _IGNORED_SUFFIXES
        and not _IGNORED_FOLDERS.intersection(file.relative_to(root).parts)
    ]
    members += [
        (f"{PACKAGE}/{name}", file) for name, file in source_files(package_root(), PLANNING_PARTS)
    ]
    members += [(f"{WHEELHOUSE_FOLDER}/{wheel.name}", wheel) for wheel in wheels]
    return sorted(members)


def archive(members: list[tuple[str, Path]]) -> bytes:
    """A tar.gz in which only names and contents differ: fixed time, mode and owner."""
    stamps = [file.stat() for _, file in members]
    return _archive(
        tuple(
            (name, file, stamp.st_mtime_ns, stamp.st_size)
            for (name, file), stamp in zip(members, stamps, strict=True)
        )
    )


@lru_cache(maxsize=2)
def _archive(members: tuple[tuple[str, Path, int, int], ...]) -> bytes:
    """As ``archive``, made once for all jobs of an app; times and sizes tell of a change."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, file, _, _ in members:
            content = file.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            entry.mtime = 0
            tar.addfile(entry, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0, compresslevel=6) as stream:
        stream.write(raw.getvalue())
    return packed.getvalue()


def write_bundle(folder: Path, *, wheels: tuple[Path, ...], source: Path | None = None) -> Path:
    """Write the bundle below ``folder`` and return the archive's path.

    Equal bundles have one path, so that the CDK hashes and copies the asset of several jobs once.
    """
    content = archive(bundle_members(wheels=wheels, source=source))
    path = folder / f"bundle-{sha256(content).hexdigest()[:16]}" / BUNDLE_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def bundle_asset(
    scope: Construct, construct_id: str, *, wheels: tuple[Path, ...]
) -> s3_assets.Asset:
    """The bundle as an asset, written into the cloud assembly's own folder."""
    return s3_assets.Asset(
        scope,
        construct_id,
        path=str(write_bundle(staging_folder(scope), wheels=wheels)),
        display_name="Training bundle",
    )
