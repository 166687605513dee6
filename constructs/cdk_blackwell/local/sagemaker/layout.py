"""The files and the environment a container starts with (SageMaker's container contract)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.local.sagemaker.errors import JobFailedError
from cdk_blackwell.local.sagemaker.record import JobRecord
from cdk_blackwell.local.sagemaker.settings import ACCESS_KEY
from cdk_blackwell.planning.contracts import (
    CONTAINER_ROOT,
    ENV_PROCESSES_PER_HOST,
    ENV_ROOT,
    rebase_container_path,
)

HOST: Final = "algo-1"
NETWORK_INTERFACE: Final = "lo"
"""Ranks of one machine talk over the loopback interface."""
INSTANCE_GROUP: Final = "homogeneousCluster"


@dataclass(frozen=True, kw_only=True)
class ContainerRoot:
    """One container's ``/opt/ml``, moved below ``path``."""

    path: Path

    @property
    def config(self) -> Path:
        """``input/config``."""
        return self.path / "input" / "config"

    @property
    def data(self) -> Path:
        """``input/data``, one folder per channel."""
        return self.path / "input" / "data"

    @property
    def model(self) -> Path:
        """What becomes the model artefact."""
        return self.path / "model"

    @property
    def output_data(self) -> Path:
        """What becomes the output artefact."""
        return self.path / "output" / "data"

    @property
    def failure(self) -> Path:
        """Where the container says why it failed."""
        return self.path / "output" / "failure"

    def checkpoints(self, request: Mapping[str, Any]) -> Path | None:
        """CheckpointConfig's folder, or None without CheckpointConfig."""
        if "CheckpointConfig" not in request:
            return None
        local = request["CheckpointConfig"].get("LocalPath", f"{CONTAINER_ROOT}/checkpoints")
        moved = rebase_container_path(local, self.path)
        if not moved.resolve().is_relative_to(self.path.resolve()):
            raise JobFailedError.client(
                f"CheckpointConfig.LocalPath {local!r} lies outside {CONTAINER_ROOT}, which the "
                "embedded AWS cannot keep apart from this machine's own files"
            )
        return moved

    def create(self, record: JobRecord) -> None:
        """Make the folders and write the three configuration files."""
        for folder in (self.config, self.data, self.model, self.output_data):
            folder.mkdir(parents=True, exist_ok=True)
        for name, content in _configuration(record).items():
            (self.config / name).write_text(json.dumps(content, indent=2) + "\n")


def _configuration(record: JobRecord) -> dict[str, dict[str, Any]]:
    request = record.request
    instance_type = request["ResourceConfig"].get("InstanceType", "")
    return {
        "hyperparameters.json": dict(request.get("HyperParameters", {})),
        "resourceconfig.json": {
            "current_host": HOST,
            "current_instance_type": instance_type,
            "current_group_name": INSTANCE_GROUP,
            "hosts": [HOST],
            "instance_groups": [
                {
                    "instance_group_name": INSTANCE_GROUP,
                    "instance_type": instance_type,
                    "hosts": [HOST],
                }
            ],
            "network_interface_name": NETWORK_INTERFACE,
        },
        "inputdataconfig.json": {
            channel["ChannelName"]: _channel_configuration(
                channel, request["AlgorithmSpecification"]["TrainingInputMode"]
            )
            for channel in request.get("InputDataConfig", [])
        },
    }


def _channel_configuration(channel: Mapping[str, Any], default_mode: str) -> dict[str, str]:
    content = {
        "TrainingInputMode": channel.get("InputMode", default_mode),
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    s3 = channel["DataSource"].get("S3DataSource")
    if s3 is not None:
        content["S3DistributionType"] = s3.get("S3DataDistributionType", "FullyReplicated")
    if "ContentType" in channel:
        content["ContentType"] = channel["ContentType"]
    return content


def container_environment(
    record: JobRecord, root: ContainerRoot, *, processes_per_host: int, endpoint_url: str
) -> dict[str, str]:
    """The whole environment of a container: nothing of the server's own but the search path.

    With EnableNetworkIsolation there are no credentials, as on SageMaker.
    """
    given: dict[str, str] = dict(record.request.get("Environment", {}))
    path = given.get("PATH", os.environ.get("PATH", os.defpath))
    isolated = record.request.get("EnableNetworkIsolation", False)
    aws = {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": ACCESS_KEY,
    }
    channels = {
        f"SM_CHANNEL_{channel['ChannelName'].upper()}": str(root.data / channel["ChannelName"])
        for channel in record.request.get("InputDataConfig", [])
    }
    temporary = {"TMPDIR": os.environ["TMPDIR"]} if "TMPDIR" in os.environ else {}
    return {
        "HOME": str(root.path),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        **temporary,
        **channels,
        **given,
        **({} if isolated else aws),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{path}",
        "AWS_REGION": record.region,
        "AWS_DEFAULT_REGION": record.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "TRAINING_JOB_NAME": record.name,
        "TRAINING_JOB_ARN": record.arn,
        "SM_CURRENT_HOST": HOST,
        "SM_HOSTS": json.dumps([HOST]),
        "SM_MODEL_DIR": str(root.model),
        "SM_OUTPUT_DATA_DIR": str(root.output_data),
        ENV_ROOT: str(root.path),
        ENV_PROCESSES_PER_HOST: str(processes_per_host),
    }
