"""Where a path on an FSx for Lustre file system comes from: its data repository associations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from botocore.exceptions import ClientError

from cdk_blackwell.local.sagemaker.errors import JobFailedError
from cdk_blackwell.local.sagemaker.s3 import S3Uri


@dataclass(frozen=True, kw_only=True)
class RepositoryFolder:
    """One S3 prefix behind (part of) a directory of the file system."""

    prefix: S3Uri
    """Ends with a slash, or is a whole bucket."""
    below: str
    """Where it lies below the directory; empty for the directory itself."""
    exports_deletions: bool
    """The association's AutoExportPolicy has DELETED."""
    exports: bool
    """The association exports anything by itself."""


def resolve_directory(fsx: Any, source: Mapping[str, Any]) -> list[RepositoryFolder]:
    """The S3 prefixes behind a channel's FileSystemDataSource.

    ``DirectoryPath`` is ``/<MountName>/<path>``. Either one association covers the path, or some
    lie below it. Everything else is a ClientError of the job that names the path.
    """
    file_system_id, directory = source["FileSystemId"], source["DirectoryPath"]
    mount_name = _mount_name(fsx, file_system_id)
    path = PurePosixPath(directory)
    if not path.is_relative_to(f"/{mount_name}"):
        raise JobFailedError.client(
            f"DirectoryPath {directory!r} is not on {file_system_id}: a path begins with its "
            f"mount name, /{mount_name}/"
        )
    wanted = PurePosixPath("/") / path.relative_to(f"/{mount_name}")
    associations = _associations(fsx, file_system_id)
    covering = [item for item in associations if wanted.is_relative_to(_path(item))]
    if covering:
        nearest = max(covering, key=lambda item: len(_path(item).parts))
        return [_folder(nearest, rest=wanted.relative_to(_path(nearest)), below="")]
    inside = [item for item in associations if _path(item).is_relative_to(wanted)]
    if not inside:
        known = ", ".join(str(_path(item)) for item in associations) or "none"
        raise JobFailedError.client(
            f"DirectoryPath {directory!r} does not exist on {file_system_id}: no data repository "
            f"association covers {wanted} (associations: {known})"
        )
    return [
        _folder(item, rest=PurePosixPath(), below=str(_path(item).relative_to(wanted)))
        for item in inside
    ]


def _mount_name(fsx: Any, file_system_id: str) -> str:
    try:
        found = fsx.describe_file_systems(FileSystemIds=[file_system_id])["FileSystems"]
    except ClientError as error:
        raise JobFailedError.client(f"cannot describe {file_system_id}: {error}") from error
    if not found:
        raise JobFailedError.client(f"file system {file_system_id} does not exist")
    file_system = found[0]
    if file_system.get("Lifecycle") != "AVAILABLE":
        raise JobFailedError.client(
            f"file system {file_system_id} is {file_system.get('Lifecycle')}, not AVAILABLE"
        )
    return str(file_system["LustreConfiguration"]["MountName"])


def _associations(fsx: Any, file_system_id: str) -> list[dict[str, Any]]:
    answer = fsx.describe_data_repository_associations(
        Filters=[{"Name": "file-system-id", "Values": [file_system_id]}]
    )
    return [item for item in answer["Associations"] if item.get("FileSystemPath")]


def _path(association: Mapping[str, Any]) -> PurePosixPath:
    return PurePosixPath("/") / str(association["FileSystemPath"])


def _folder(association: Mapping[str, Any], *, rest: PurePosixPath, below: str) -> RepositoryFolder:
    root = S3Uri.parse(association["DataRepositoryPath"])
    prefix = root.folder if str(rest) == "." else (root / str(rest)).folder
    policy = association.get("S3", {}).get("AutoExportPolicy", {}).get("Events", [])
    return RepositoryFolder(
        prefix=prefix,
        below=below,
        exports="NEW" in policy or "CHANGED" in policy,
        exports_deletions="DELETED" in policy,
    )
