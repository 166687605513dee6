"""What goes into the controller and comes out: one job's definition, and the answer it gives.

Custom-resource properties arrive as strings, so everything travels in one JSON string,
``Definition``; beside it only ``ServiceToken`` and, to launch, ``RunId``. Nothing here needs boto3:
the constructs and the command line import it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from cdk_blackwell.planning.contracts import SCHEMA_VERSION
from cdk_blackwell.planning.strict_json import read_dataclass

PROPERTY_DEFINITION: Final = "Definition"
PROPERTY_RUN_ID: Final = "RunId"
RESOURCE_TYPE: Final = "Custom::CdkBlackwellRun"

ENV_TABLE: Final = "CDKB_TABLE"
ENV_TOPIC: Final = "CDKB_TOPIC"
ENV_STACK_ID: Final = "CDKB_STACK_ID"
"""The controller's Lambda environment: its DynamoDB table's name, its SNS topic's ARN, and the id
(ARN) of the stack whose CloudFormation events it obeys."""

TABLE_PARTITION_KEY: Final = "pk"
TABLE_SORT_KEY: Final = "sk"

PLACEHOLDER_JOB_NAME: Final = "{{job_name}}"
PLACEHOLDER_RUN_ID: Final = "{{run_id}}"
PLACEHOLDER_ATTEMPT: Final = "{{attempt}}"
PLACEHOLDER_RUN_URI: Final = "{{run_uri}}"
PLACEHOLDER_STACK_ID: Final = "{{stack_id}}"
"""Stand in the request template for what only a launch knows; replaced inside strings.

``{{run_uri}}`` is ``s3://bucket/<job>/runs/<run_id>`` without a trailing slash.
"""


@dataclass(frozen=True, kw_only=True)
class S3Object:
    """One object."""

    bucket: str
    key: str


@dataclass(frozen=True, kw_only=True)
class JobDefinition:
    """Everything a launch needs beside the run's id."""

    schema_version: int
    job: str
    """Prefix of training job names and of keys in the checkpoint bucket."""
    request: dict[str, Any]
    """CreateTrainingJob request with placeholders; HyperParameters are added at launch."""
    run: dict[str, Any]
    """``run.json`` without ``run_id``."""
    bundle: S3Object
    """Asset with the training bundle; frozen into the run's prefix at launch."""
    checkpoint_bucket: str
    dataset_manifest: S3Object
    """Must exist before a launch."""
    maximum_attempts: int
    instance_count: int
    hourly_price_usd: float | None
    """Per instance; None when the user gave none, 0 under a training plan that is paid anyway."""
    max_cost_usd: float | None
    """The most that all attempts of a run may cost together; None: no ceiling."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types (values may still be CDK tokens at synth)."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: str) -> JobDefinition:
        """Read strictly; ValueError names the offending key."""
        value = json.loads(text)
        if not isinstance(value, Mapping) or value.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"Definition must be an object of schema_version {SCHEMA_VERSION}")
        definition = read_dataclass(cls, value, "Definition")
        assert isinstance(definition, cls)
        return definition


@dataclass(frozen=True, kw_only=True)
class ControllerAnswer:
    """What a direct invocation (start, trial, stop, status) is answered with."""

    run_id: str | None
    state: str
    """``starting``, ``stopping``, ``dry_run``, ``refused``, ``none`` or the run's own state."""
    message: str
    """For people: what happened and what they can do."""
    job_name: str | None = None
    """The newest attempt's training job."""
    request: dict[str, Any] | None = None
    """The CreateTrainingJob request of a start or a trial, or of its dry run."""
    cost: dict[str, Any] | None = None
    """What the run costs at most, in USD where a price is known."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as Lambda returns them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Any) -> ControllerAnswer:
        """Read strictly what Lambda returned; ValueError names the offending key."""
        answer = read_dataclass(cls, value, "the controller's answer")
        assert isinstance(answer, cls)
        return answer
