"""The bridge from a deployed job to the SageMaker Python SDK, version 3 (extra ``[sdk]``)."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("sagemaker") is None:
    raise ModuleNotFoundError(
        "cdk_blackwell.sdk needs the SageMaker Python SDK 3: pip install 'cdk-blackwell[sdk]'",
        name="sagemaker",
    )

from cdk_blackwell.deployed.errors import AwsRefusedError, CommandError, RefusedError
from cdk_blackwell.sdk.connected import ConnectedJob, connect

__all__ = ["AwsRefusedError", "CommandError", "ConnectedJob", "RefusedError", "connect"]
