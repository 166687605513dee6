"""The input channels of a job: where their files come from, how large they are, filling them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.local.sagemaker.errors import JobFailedError
from cdk_blackwell.local.sagemaker.file_system import resolve_directory
from cdk_blackwell.local.sagemaker.s3 import Mirror, S3File, S3Uri, download, list_files
from cdk_blackwell.local.sagemaker.settings import Clients

DISK_RESERVE_BYTES: Final = 256 * 2**20
"""Kept free beside what is downloaded, for checkpoints and the model of a small run."""
_GIB: Final = 2**30


@dataclass(frozen=True, kw_only=True)
class ChannelFiles:
    """One channel's files, or one part of a channel."""

    name: str
    below: str
    """Folder inside the channel; empty for the channel itself."""
    files: list[S3File]
    export_to: S3Uri | None = None
    """Where a read-write file system exports what the container writes."""
    exports_deletions: bool = False

    def folder(self, data: Path) -> Path:
        """Where the files go, given ``input/data``."""
        return data / self.name / self.below


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything a container finds when it starts."""

    channels: list[ChannelFiles] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes to download."""
        return sum(file.size for channel in self.channels for file in channel.files)

    def fill(self, clients: Clients, data: Path, check: Callable[[], None]) -> list[Mirror]:
        """Download all channels below ``data``; ``check`` runs before each file.

        Returns the mirrors of the read-write channels, to be pushed while the container runs.
        """
        mirrors = []
        for channel in self.channels:
            folder = channel.folder(data)
            folder.mkdir(parents=True, exist_ok=True)
            for file in channel.files:
                check()
                download(clients.s3, file, folder)
            if channel.export_to is not None:
                mirror = Mirror(
                    s3=clients.s3,
                    folder=folder,
                    prefix=channel.export_to,
                    propagates_deletions=channel.exports_deletions,
                )
                mirror.adopt()
                mirrors.append(mirror)
        return mirrors


def find_inputs(clients: Clients, request: Mapping[str, Any]) -> Inputs:
    """List the files of every channel; an empty or missing source is a ClientError of the job."""
    default_mode = request["AlgorithmSpecification"]["TrainingInputMode"]
    channels: list[ChannelFiles] = []
    for channel in request.get("InputDataConfig", []):
        _refuse_what_is_not_executed(channel, default_mode)
        source = channel["DataSource"]
        if "FileSystemDataSource" in source:
            channels += _from_file_system(
                clients, channel["ChannelName"], source["FileSystemDataSource"]
            )
        else:
            channels.append(_from_s3(clients, channel["ChannelName"], source["S3DataSource"]))
    return Inputs(channels=channels)


def check_disk(needed: int, folder: Path) -> None:
    """Fail the job when ``needed`` bytes and a reserve do not fit where ``folder`` lies."""
    free = shutil.disk_usage(folder).free
    if free < needed + DISK_RESERVE_BYTES:
        raise JobFailedError.client(
            f"not enough disk: the channels and checkpoints need {needed / _GIB:.2f} GiB and a "
            f"reserve of {DISK_RESERVE_BYTES / _GIB:.2f} GiB, {folder} has "
            f"{free / _GIB:.2f} GiB free; free some space or move the state directory"
        )


def _refuse_what_is_not_executed(channel: Mapping[str, Any], default_mode: str) -> None:
    name = channel["ChannelName"]
    mode = channel.get("InputMode", default_mode)
    if mode == "Pipe":
        raise JobFailedError.client(
            f"channel {name!r}: the embedded AWS does not run InputMode Pipe; use File or FastFile"
        )
    for member in ("CompressionType", "RecordWrapperType"):
        if channel.get(member, "None") != "None":
            raise JobFailedError.client(
                f"channel {name!r}: {member} {channel[member]!r} belongs to InputMode Pipe, "
                "which the embedded AWS does not run"
            )


def _from_s3(clients: Clients, name: str, source: Mapping[str, Any]) -> ChannelFiles:
    if source["S3DataType"] != "S3Prefix":
        raise JobFailedError.client(
            f"channel {name!r}: the embedded AWS runs S3DataType S3Prefix, not "
            f"{source['S3DataType']!r}"
        )
    files = list_files(clients.s3, S3Uri.parse(source["S3Uri"]))
    if not files:
        raise JobFailedError.client(
            f"Data download failed: no S3 objects found under S3 URL {source['S3Uri']!r} given "
            f"in input data source of channel {name!r}"
        )
    return ChannelFiles(name=name, below="", files=files)


def _from_file_system(clients: Clients, name: str, source: Mapping[str, Any]) -> list[ChannelFiles]:
    if source["FileSystemType"] != "FSxLustre":
        raise JobFailedError.client(
            f"channel {name!r}: the embedded AWS runs FileSystemType FSxLustre, not "
            f"{source['FileSystemType']!r}"
        )
    is_writable = source["FileSystemAccessMode"] == "rw"
    parts = [
        ChannelFiles(
            name=name,
            below=folder.below,
            files=list_files(clients.s3, folder.prefix),
            export_to=folder.prefix if is_writable and folder.exports else None,
            exports_deletions=folder.exports_deletions,
        )
        for folder in resolve_directory(clients.fsx, source)
    ]
    if not any(part.files for part in parts):
        raise JobFailedError.client(
            f"channel {name!r}: DirectoryPath {source['DirectoryPath']!r} on "
            f"{source['FileSystemId']} is empty or does not exist"
        )
    return parts
