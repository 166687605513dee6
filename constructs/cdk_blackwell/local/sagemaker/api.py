"""SageMaker's training-job operations, in place of moto's.

moto's own drop members of the request, complete at once and overwrite a job of the same name.
Its methods are replaced on the classes; :func:`patch_moto` returns what puts them back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from moto.sagemaker.exceptions import (
    AWSValidationException,
    ResourceInUseException,
    SagemakerClientError,
)
from moto.sagemaker.models import SageMakerModelBackend
from moto.sagemaker.responses import SageMakerResponse

from cdk_blackwell.local.sagemaker.listing import list_jobs
from cdk_blackwell.local.sagemaker.record import TERMINAL, JobRecord
from cdk_blackwell.local.sagemaker.runtime import (
    DuplicateJobError,
    RuntimeEndedError,
    SageMakerRuntime,
)
from cdk_blackwell.local.sagemaker.validation import (
    INSTANCE_LIMIT,
    instance_count,
    validation_message,
)

NOT_FOUND: Final = "Requested resource not found."

_Patch = tuple[type, str, Callable[..., Any], bool]


def patch_moto(runtime: SageMakerRuntime) -> Callable[[], None]:
    """Answer the training-job operations from ``runtime``; returns the way back.

    RuntimeError when this moto lacks something that is replaced here: moto is pinned, and a
    silent miss would leave its own behaviour in place.
    """
    patches = [*_response_patches(runtime), *_backend_patches()]
    missing = [
        f"{owner.__name__}.{name}"
        for owner, name, _, exists in patches
        if exists and name not in vars(owner)
    ]
    if missing:
        raise RuntimeError(f"this version of moto has no {', '.join(missing)}; use moto 5.2.5")
    originals = [(owner, name, vars(owner).get(name)) for owner, name, _, _ in patches]
    for owner, name, function, _ in patches:
        setattr(owner, name, function)

    def restore() -> None:
        for owner, name, original in originals:
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    return restore


def _response_patches(runtime: SageMakerRuntime) -> list[_Patch]:
    def create_training_job(self: Any) -> str:
        return json.dumps({"TrainingJobArn": _create(runtime, self).arn})

    def describe_training_job(self: Any) -> str:
        return json.dumps(_find(self).describe())

    def stop_training_job(self: Any) -> str:
        record = _find(self)
        if record.is_terminal:
            raise AWSValidationException(
                f"The request was rejected because the training job is in status {record.status}."
            )
        runtime.stop(record.name)
        return ""

    def delete_training_job(self: Any) -> str:
        record = _find(self)
        if record.status not in TERMINAL:
            raise ResourceInUseException(
                f"Training job {record.arn} is {record.status}; only a job that is over can be "
                "deleted."
            )
        runtime.delete(record.name)
        del self.sagemaker_backend.training_jobs[record.name]
        return ""

    def list_training_jobs(self: Any) -> str:
        jobs: dict[str, JobRecord] = self.sagemaker_backend.training_jobs
        query = json.loads(self.body or "{}")
        try:
            return json.dumps(list_jobs(list(jobs.values()), query))
        except ValueError as error:
            raise AWSValidationException(f"1 validation error detected: {error}") from error

    return [
        (SageMakerResponse, "create_training_job", create_training_job, True),
        (SageMakerResponse, "describe_training_job", describe_training_job, True),
        (SageMakerResponse, "list_training_jobs", list_training_jobs, True),
        (SageMakerResponse, "stop_training_job", stop_training_job, False),
        (SageMakerResponse, "delete_training_job", delete_training_job, False),
    ]


def _backend_patches() -> list[_Patch]:
    find = SageMakerModelBackend._get_resource_from_arn
    add = SageMakerModelBackend.add_tags

    def find_resource(self: Any, arn: str) -> Any:
        resource = find(self, arn)
        if resource is None and ":training-job/" in arn:
            raise AWSValidationException(NOT_FOUND)
        return resource

    def add_tags(self: Any, arn: str, tags: list[dict[str, str]]) -> list[dict[str, str]]:
        resource = self._get_resource_from_arn(arn)
        if not isinstance(resource, JobRecord):
            added: list[dict[str, str]] = add(self, arn, tags)
            return added
        resource.merge_tags(tags)
        return resource.tags

    return [
        (SageMakerModelBackend, "_get_resource_from_arn", find_resource, True),
        (SageMakerModelBackend, "add_tags", add_tags, True),
    ]


def _create(runtime: SageMakerRuntime, response: Any) -> JobRecord:
    body: str | bytes = response.body
    raw = body if isinstance(body, bytes) else body.encode()
    request: dict[str, Any] = json.loads(raw)
    problem = validation_message(request)
    if problem:
        raise AWSValidationException(problem)
    count = instance_count(request)
    if count > INSTANCE_LIMIT:
        raise SagemakerClientError(
            "ResourceLimitExceeded",
            f"The embedded AWS runs {INSTANCE_LIMIT} instance per training job and the request "
            f"asks for {count}; use one instance here, or a real account.",
        )
    jobs: dict[str, JobRecord] = response.sagemaker_backend.training_jobs
    try:
        record = runtime.create(
            request=request,
            body=raw,
            account=response.current_account,
            region=response.region,
            register=lambda new: jobs.__setitem__(new.name, new),
        )
    except DuplicateJobError as error:
        raise ResourceInUseException(
            f"Training job names must be unique within an AWS account and region, but a training "
            f"job with this name already exists ({error})"
        ) from error
    except RuntimeEndedError as error:
        raise SagemakerClientError("ServiceUnavailable", str(error)) from error
    return record


def _find(response: Any) -> JobRecord:
    name = json.loads(response.body).get("TrainingJobName")
    record = response.sagemaker_backend.training_jobs.get(name)
    if not isinstance(record, JobRecord):
        raise AWSValidationException(NOT_FOUND)
    return record
