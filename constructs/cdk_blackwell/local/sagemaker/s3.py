"""Copying between the emulated S3 and a container's folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from cdk_blackwell.local.sagemaker.errors import JobFailedError

_ONE_THREAD = TransferConfig(use_threads=False)
UPLOADING_SUFFIX: Final = ".sagemaker-uploading"
UPLOADED_SUFFIX: Final = ".sagemaker-uploaded"
"""Files that SageMaker puts beside a checkpoint's file while it copies it, and afterwards."""


@dataclass(frozen=True, kw_only=True)
class S3Uri:
    """``s3://bucket/key``; the key may be empty or a prefix."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> S3Uri:
        """Read ``s3://bucket/key``; JobFailedError when it is something else."""
        scheme, _, rest = uri.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme not in {"s3", "https"} or not bucket:
            raise JobFailedError.client(f"{uri!r} is not an S3 URI; give s3://bucket/prefix")
        return cls(bucket=bucket, key=key)

    @property
    def folder(self) -> S3Uri:
        """The same with the key ending in a slash, unless it is the whole bucket."""
        key = self.key.rstrip("/")
        return S3Uri(bucket=self.bucket, key=f"{key}/" if key else "")

    def __truediv__(self, name: str) -> S3Uri:
        return S3Uri(bucket=self.bucket, key=f"{self.folder.key}{name}")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, kw_only=True)
class S3File:
    """One object and the place where it belongs, relative to a folder."""

    source: S3Uri
    path: str
    size: int
    """Bytes."""


def list_files(s3: Any, prefix: S3Uri) -> list[S3File]:
    """Every object whose key begins with ``prefix``, with SageMaker's names below a channel.

    A prefix that is itself an object gives the object's own name; a folder gives the names below
    it; part of a name (``data/train-``) gives the names after the last slash. Folder markers
    (keys that end with a slash) are no files. A missing bucket is a ClientError of the job.
    """
    try:
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket=prefix.bucket, Prefix=prefix.key
        )
        objects = [item for page in pages for item in page.get("Contents", [])]
    except ClientError as error:
        raise JobFailedError.client(f"cannot list {prefix}: {error}") from error
    return [
        S3File(
            source=S3Uri(bucket=prefix.bucket, key=item["Key"]),
            path=_local_name(item["Key"], prefix.key),
            size=item["Size"],
        )
        for item in objects
        if not item["Key"].endswith("/")
    ]


def _local_name(key: str, prefix: str) -> str:
    folder = f"{prefix}/"
    if key.startswith(folder):
        return key[len(folder) :]
    return key[prefix.rfind("/") + 1 :]


def download(s3: Any, file: S3File, folder: Path) -> Path:
    """Copy one object to ``folder / file.path``."""
    target = folder / file.path
    if not target.resolve().is_relative_to(folder.resolve()):
        raise JobFailedError.client(f"{file.source} would be written outside its channel")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        s3.download_file(file.source.bucket, file.source.key, str(target), Config=_ONE_THREAD)
    except ClientError as error:
        raise JobFailedError.client(f"cannot download {file.source}: {error}") from error
    return target


def upload(s3: Any, path: Path, target: S3Uri, *, kms_key_id: str | None = None) -> None:
    """Copy one file to S3, encrypted with ``kms_key_id`` when given."""
    extra = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key_id} if kms_key_id else None
    try:
        s3.upload_file(str(path), target.bucket, target.key, ExtraArgs=extra, Config=_ONE_THREAD)
    except Exception as error:
        # boto3 wraps what S3 says into its own S3UploadFailedError, files that vanish stay OSError.
        if isinstance(error, OSError):
            raise
        raise JobFailedError.client(f"cannot upload {path.name} to {target}: {error}") from error


def files_below(folder: Path) -> Iterator[Path]:
    """Regular files, sorted, links to folders not followed; SageMaker's own markers are none."""
    for where, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(where, name)
            if path.is_file() and not name.endswith((UPLOADING_SUFFIX, UPLOADED_SUFFIX)):
                yield path


@dataclass(kw_only=True)
class Mirror:
    """A folder kept equal to an S3 prefix: restored at start, then copied back as it changes."""

    s3: Any
    folder: Path
    prefix: S3Uri
    """Ends with a slash (or is a whole bucket)."""
    propagates_deletions: bool
    has_markers: bool = False
    """Put SageMaker's marker files beside what is copied, as its checkpoint upload does."""
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Modification time in nanoseconds and size of each file when last copied."""

    def restore(self, check: Callable[[], None]) -> int:
        """Copy everything below the prefix into the folder; ``check`` runs before each file.

        Returns the number of files.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        files = list_files(self.s3, self.prefix)
        for file in files:
            check()
            download(self.s3, file, self.folder)
        self.adopt()
        return len(files)

    def adopt(self) -> None:
        """Take what is in the folder now as equal to S3."""
        self._seen = {
            path.relative_to(self.folder).as_posix(): _stamp(path)
            for path in files_below(self.folder)
        }

    def push(self) -> None:
        """Copy new and changed files to S3, and delete there what was deleted here."""
        present = set()
        for path in files_below(self.folder):
            name = path.relative_to(self.folder).as_posix()
            present.add(name)
            try:
                stamp = _stamp(path)
                if self._seen.get(name) != stamp:
                    self._upload(path, self.prefix / name)
                    self._seen[name] = stamp
            except FileNotFoundError:
                # The container renamed or deleted it meanwhile; the next push sees that.
                continue
        for name in sorted(set(self._seen) - present):
            if self.propagates_deletions:
                target = self.prefix / name
                self.s3.delete_object(Bucket=target.bucket, Key=target.key)
            _beside(self.folder / name, UPLOADED_SUFFIX).unlink(missing_ok=True)
            del self._seen[name]

    def _upload(self, path: Path, target: S3Uri) -> None:
        if not self.has_markers:
            upload(self.s3, path, target)
            return
        marker = _beside(path, UPLOADING_SUFFIX)
        marker.touch()
        try:
            upload(self.s3, path, target)
            with suppress(FileNotFoundError):  # the container may clear the folder meanwhile
                marker.replace(_beside(path, UPLOADED_SUFFIX))
        finally:
            marker.unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
