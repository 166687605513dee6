"""The run's prefix in S3: frozen at launch, read for progress."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.lifecycle.handler.definition import JobDefinition, S3Object
from cdk_blackwell.lifecycle.handler.errors import (
    AccessRefused,
    LaunchRefused,
    error_code,
    error_message,
)
from cdk_blackwell.lifecycle.handler.request import run_location, run_spec
from cdk_blackwell.planning.contracts import BUNDLE_FILE, PROGRESS_FILE, RUN_FILE
from cdk_blackwell.planning.records import Progress

_MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound", "NoSuchBucket"})
_TAKEN: Final = frozenset({"412", "PreconditionFailed", "ConditionalRequestConflict"})
_CLAIM: Final = "cdk-blackwell-claim"
"""Object metadata of ``run.json``: whose launch this prefix belongs to."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The few objects the controller touches."""

    s3: Any

    def require_manifest(self, manifest: S3Object) -> None:
        """LaunchRefused when the dataset's manifest is not there."""
        uri = f"s3://{manifest.bucket}/{manifest.key}"
        try:
            self.s3.head_object(Bucket=manifest.bucket, Key=manifest.key)
        except ClientError as error:
            if error_code(error) in _MISSING:
                raise LaunchRefused(
                    f"the dataset manifest {uri} does not exist. Make it with "
                    "training_scripts/prepare_data.py and upload its output folder to "
                    f"{uri.rsplit('/', 1)[0]}/, then launch again."
                ) from error
            raise AccessRefused(
                f"the dataset manifest {uri} cannot be read ({error_code(error)}: "
                f"{error_message(error)}). Allow the controller's role to read it."
            ) from error

    def freeze(self, definition: JobDefinition, run_id: str, claim: str) -> None:
        """Write ``run.json`` and the bundle into the run's prefix, unless it is another claim's.

        ``claim`` names the claim of the run's first attempt; its holder may repeat this.
        """
        where = run_location(definition, run_id)
        target = {"Bucket": where.bucket, "Key": where.key(RUN_FILE)}
        body = {
            "Body": run_spec(definition, run_id).to_json().encode(),
            "ContentType": "application/json",
            "Metadata": {_CLAIM: claim},
        }
        try:
            self.s3.put_object(**target, **body, IfNoneMatch="*")
        except ClientError as error:
            if error_code(error) not in _TAKEN:
                raise
            if self._claim(target) != claim:
                raise LaunchRefused(
                    f"run_id already used: {where.uri} holds a run that another stack, or an "
                    "earlier life of this one, launched. Choose another run_id."
                ) from error
        bundle = definition.bundle
        try:
            self.s3.copy_object(
                Bucket=where.bucket,
                Key=where.key(BUNDLE_FILE),
                CopySource={"Bucket": bundle.bucket, "Key": bundle.key},
            )
        except ClientError as error:
            if error_code(error) not in _MISSING:
                raise
            raise LaunchRefused(
                f"the training bundle s3://{bundle.bucket}/{bundle.key} does not exist any more. "
                "Deploy the stack again, which uploads it."
            ) from error

    def give_back(self, definition: JobDefinition, run_id: str, claim: str) -> None:
        """Undo ``freeze`` of a run that never had a job, so that its run_id stays usable."""
        where = run_location(definition, run_id)
        target = {"Bucket": where.bucket, "Key": where.key(RUN_FILE)}
        if self._claim(target) == claim:
            self.s3.delete_object(**target)

    def last_complete_step(self, definition: JobDefinition, run_id: str) -> int:
        """Step of the newest complete checkpoint by ``progress.json``; 0 before the first."""
        progress = self.progress(definition, run_id)
        return 0 if progress is None else max(0, progress.last_complete_step)

    def progress(self, definition: JobDefinition, run_id: str) -> Progress | None:
        """``progress.json``; None before it is written, and when it cannot be understood.

        The latter counts as no progress: the bound on useless attempts must not depend on it.
        """
        where = run_location(definition, run_id)
        try:
            answer = self.s3.get_object(Bucket=where.bucket, Key=where.key(PROGRESS_FILE))
        except ClientError as error:
            if error_code(error) in _MISSING:
                return None
            raise
        body: bytes = answer["Body"].read()
        try:
            return Progress.from_json(body)
        except ValueError as error:
            log.warning("%s/%s cannot be read: %s", where.uri, PROGRESS_FILE, error)
            return None

    def _claim(self, target: dict[str, str]) -> str | None:
        try:
            head = self.s3.head_object(**target)
        except ClientError as error:
            if error_code(error) in _MISSING:
                return None
            raise
        claim = head["Metadata"].get(_CLAIM)
        return str(claim) if claim is not None else None
