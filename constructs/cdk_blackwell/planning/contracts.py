"""What passes between the constructs, the run controller, the trainer and the command line.

Every name that two parts must agree on is fixed here, once. The constructs write these names into
templates, the controller's Lambda and the training bundle carry this very file, so the two ends
cannot drift apart. Standard library only: it runs in Lambda and inside the training container.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Final, Literal

SCHEMA_VERSION: Final = 1
"""Version of ``run.json``, ``progress.json``, ``COMPLETE.json`` and the dataset manifest."""

Tier = Literal["small", "mid", "large-sharded"]

# --- Container paths (the SageMaker training contract) -------------------------------------------

CONTAINER_ROOT: Final = "/opt/ml"
"""Root of SageMaker's container contract; ``CDKB_ROOT`` moves it (local runs and tests)."""

CHANNEL_CODE: Final = "code"
CHANNEL_CONFIG: Final = "config"
CHANNEL_DATASET: Final = "dataset"
CHANNEL_CHECKPOINTS: Final = "checkpoints"
CHANNEL_INITIAL_WEIGHTS: Final = "initial_weights"

BUNDLE_FILE: Final = "bundle.tar.gz"
RUN_FILE: Final = "run.json"
PROGRESS_FILE: Final = "progress.json"
TRIAL_FILE: Final = "trial.json"
COMPLETE_FILE: Final = "COMPLETE.json"
DATASET_MANIFEST_FILE: Final = "manifest.json"

CONTAINER_CHECKPOINTS: Final = f"{CONTAINER_ROOT}/checkpoints"

CONTAINER_ENTRYPOINT: Final = ("/bin/bash", "-c")
CONTAINER_ARGUMENTS: Final = (
    'set -e; r="${CDKB_ROOT:-/opt/ml}"; mkdir -p "$r/code"; '
    f'tar -xzf "$r/input/data/{CHANNEL_CODE}/{BUNDLE_FILE}" -C "$r/code"; '
    'exec python3 "$r/code/launch.py"',
)
"""Unpacks the bundle and *replaces* the shell by the launcher, so that SIGTERM reaches it."""

# --- Environment of the container ----------------------------------------------------------------

ENV_ROOT: Final = "CDKB_ROOT"
ENV_RUN_ID: Final = "CDKB_RUN_ID"
ENV_ATTEMPT: Final = "CDKB_ATTEMPT"
ENV_JOB: Final = "CDKB_JOB"
ENV_TIER: Final = "CDKB_TIER"
ENV_CHECKPOINT_DIR: Final = "CDKB_CHECKPOINT_DIR"
ENV_RUN_S3: Final = "CDKB_RUN_S3"
ENV_METRICS_NAMESPACE: Final = "CDKB_METRICS_NAMESPACE"
ENV_HUGGING_FACE_SECRET: Final = "CDKB_HUGGING_FACE_SECRET"
"""Run id, job, tier, metrics namespace and the ARN of a secret that holds a Hugging Face token are
for own scripts; nothing of ours reads them."""
ENV_PACKAGE_INDEX: Final = "CDKB_PACKAGE_INDEX"
"""Where the launcher installs the locked packages from; unset, from the bundle's wheels."""
DEFAULT_INDEX: Final = "default"
CODE_ARTIFACT_INDEX: Final = "codeartifact"
"""Its values: the index pip is set up for, or ``codeartifact:<domain>:<owner>:<repository>``."""
ENV_PROCESSES_PER_HOST: Final = "CDKB_PROCESSES_PER_HOST"
"""Ranks to start on a host without GPUs; ignored where GPUs are present (one rank per GPU)."""
ENV_ALLOW_TCP: Final = "CDKB_ALLOW_TCP"
"""``1`` lets hosts with fewer EFA devices than GPUs train over TCP, many times slower."""
ENV_TRIAL: Final = "CDKB_TRIAL"
"""``1``: try candidates for a few steps each and write ``trial.json``, instead of training. The
controller sets it for its action ``trial``; absent in every other run."""
ENV_TRIAL_SECONDS: Final = "CDKB_TRIAL_SECONDS"
"""The job's MaxRuntimeInSeconds, which the container cannot see; set with ``CDKB_TRIAL``. Left out:
``TRIAL_MAXIMUM_SECONDS``."""
ENV_TRIAL_CANDIDATE: Final = "CDKB_TRIAL_CANDIDATE"
"""Folder of one candidate, from the launcher to its ranks: they read ``run.json`` there instead of
in channel ``config``, write what they measured there, and save nothing."""
TRIAL_MAXIMUM_SECONDS: Final = 3600
"""MaxRuntimeInSeconds of a trial (or the job's own, where that is less): so long may all candidates
take together, with their start. This project's assumption: some six candidates of ten minutes."""
ENV_RANK_STATE_DIR: Final = "CDKB_RANK_STATE_DIR"
"""Set by the launcher for its ranks: where each one leaves its account."""

PLATFORM_ENVIRONMENT: Final[Mapping[str, str]] = {
    "FI_PROVIDER": "efa",
    "FI_EFA_USE_HUGE_PAGE": "0",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}
"""What P6-B200 hosts need; stands in the request and, for other ways to start, in the launcher.

NCCL_PROTO and NCCL_ALGO stay unset on purpose: NCCL's own choice is right on B200.
"""


def rebase_container_path(path: str, root: str | Path) -> Path:
    """Move an absolute container path below ``root``.

    ``/opt/ml/checkpoints`` with root ``/tmp/x`` gives ``/tmp/x/checkpoints``; a path outside
    ``/opt/ml`` is returned unchanged.
    """
    pure = PurePosixPath(path)
    if pure.is_relative_to(CONTAINER_ROOT):
        return Path(root) / pure.relative_to(CONTAINER_ROOT)
    return Path(path)


# --- S3 layout of the checkpoint bucket ----------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunLocation:
    """Where one run lives in the checkpoint bucket: ``<job>/runs/<run_id>/``."""

    bucket: str
    job: str
    run_id: str

    @property
    def prefix(self) -> str:
        """Key prefix without a trailing slash."""
        return f"{self.job}/runs/{self.run_id}"

    @property
    def uri(self) -> str:
        """``s3://bucket/<job>/runs/<run_id>``, without a trailing slash."""
        return f"s3://{self.bucket}/{self.prefix}"

    def key(self, name: str) -> str:
        """Key of ``name`` (one of the ``*_FILE`` constants, ``checkpoints`` or ``export``)."""
        return f"{self.prefix}/{name}"


CHECKPOINTS_FOLDER: Final = "checkpoints"
EXPORT_FOLDER: Final = "export"

_STEP_FOLDER = re.compile(r"step-(\d{10})")


def step_folder(step: int) -> str:
    """``step-0000000200``: ten digits, so that names sort as numbers do."""
    return f"step-{step:010d}"


def parse_step_folder(name: str) -> int | None:
    """The step of a checkpoint folder's name, or None when it is not one."""
    match = _STEP_FOLDER.fullmatch(name)
    return int(match.group(1)) if match else None


# --- Names ---------------------------------------------------------------------------------------

JOB_PREFIX_LENGTH: Final = 22
RUN_ID_LENGTH: Final = 24
ATTEMPT_LENGTH: Final = 3
TRAINING_JOB_NAME_LENGTH: Final = 63
_NAME = re.compile(r"[a-zA-Z0-9](?:-?[a-zA-Z0-9])*")


def check_job_prefix(job: str) -> str:
    """Return ``job`` when it can begin a training job's name and an S3 prefix; else ValueError."""
    if not _NAME.fullmatch(job) or len(job) > JOB_PREFIX_LENGTH:
        raise ValueError(
            f"job name {job!r} is not usable: give 1-{JOB_PREFIX_LENGTH} letters, digits and "
            "single hyphens, beginning and ending with a letter or digit"
        )
    return job


def check_run_id(run_id: str) -> str:
    """Return ``run_id`` when it is usable in a training job's name; else ValueError."""
    if not _NAME.fullmatch(run_id) or len(run_id) > RUN_ID_LENGTH:
        raise ValueError(
            f"run_id {run_id!r} is not usable: give 1-{RUN_ID_LENGTH} letters, digits and single "
            "hyphens, beginning and ending with a letter or digit (for example 2027-01-15-a)"
        )
    return run_id


def stack_tag(stack_id: str) -> str:
    """Eight hexadecimal digits that tell two stacks' jobs apart (SHA-256 of the stack's ARN)."""
    return hashlib.sha256(stack_id.encode()).hexdigest()[:8]


def training_job_name(*, job: str, stack_id: str, run_id: str, attempt: int) -> str:
    """``<job>-<8 hex of the stack>-<run_id>-<attempt>``, at most 63 characters.

    ``attempt`` counts from 1 to 999.
    """
    if not 1 <= attempt < 10**ATTEMPT_LENGTH:
        raise ValueError(f"attempt {attempt} is outside 1-{10**ATTEMPT_LENGTH - 1}")
    return f"{check_job_prefix(job)}-{stack_tag(stack_id)}-{check_run_id(run_id)}-{attempt}"


# --- Tags ----------------------------------------------------------------------------------------

TAG_JOB: Final = "cdk-blackwell:job"
TAG_RUN_ID: Final = "cdk-blackwell:run-id"
TAG_ATTEMPT: Final = "cdk-blackwell:attempt"
TAG_STACK: Final = "cdk-blackwell:stack"

# --- Failure text --------------------------------------------------------------------------------

FailureClass = Literal["capacity", "internal", "infrastructure", "out_of_memory", "data", "user"]
FAILURE_CLASSES: Final[tuple[FailureClass, ...]] = (
    "capacity",
    "internal",
    "infrastructure",
    "out_of_memory",
    "data",
    "user",
)
NO_SMALLER_BATCH: Final = "there is no smaller size"
"""In an ``out_of_memory`` text: another attempt would run out of memory again. Without these words
the trainer left a lower limit for its micro-batch beside the checkpoints."""
FAILURE_TEXT_LENGTH: Final = 1024
_FAILURE = re.compile(
    r"CDKB class=(?P<kind>[a-z_]+) step=(?P<step>-?\d+) rank=(?P<rank>-?\d+): (?P<message>.*)",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What ``/opt/ml/output/failure`` says; SageMaker copies it into FailureReason."""

    kind: FailureClass
    message: str
    step: int = -1
    """Optimizer step reached, -1 before the first."""
    rank: int = -1
    """First failing rank, -1 for the launcher."""

    def render(self) -> str:
        """The text, cut to the 1,024 characters that reach FailureReason."""
        text = f"CDKB class={self.kind} step={self.step} rank={self.rank}: {self.message}"
        return text[:FAILURE_TEXT_LENGTH]

    @classmethod
    def find(cls, text: str) -> Failure | None:
        """Find a failure text anywhere in ``text`` (SageMaker puts its own words before it)."""
        match = _FAILURE.search(text)
        if match is None:
            return None
        kind = next((known for known in FAILURE_CLASSES if known == match["kind"]), None)
        if kind is None:
            return None
        return cls(
            kind=kind,
            message=match["message"],
            step=int(match["step"]),
            rank=int(match["rank"]),
        )


# --- Stack output and metrics --------------------------------------------------------------------

METRICS_NAMESPACE: Final = "CdkBlackwell"


NAMESPACE_OF_JOBS: Final = "/aws/sagemaker/TrainingJobs"
"""CloudWatch namespace of training jobs, and the name of the log group of their containers."""

STACK_OUTPUT_PREFIX: Final = "CdkBlackwell"


def stack_output_name(job_id: str) -> str:
    """Logical id of the one JSON output of a job: ``CdkBlackwell<Job>``."""
    return STACK_OUTPUT_PREFIX + re.sub(r"[^A-Za-z0-9]", "", job_id)


@dataclass(frozen=True, kw_only=True)
class StackOutput:
    """The value of that output: all the command line needs to find a deployed job."""

    controller: str
    """Name of the run controller's function."""
    job: str
    """Prefix of training job names and of keys in the checkpoint bucket."""
    tier: str
    checkpoint_bucket: str
    dataset_bucket: str
    topic: str
    """ARN of the topic that tells people what happened."""
    table: str
    """Name of the controller's table."""
    dashboard: str
    """Name of the CloudWatch dashboard."""

    def to_dict(self) -> dict[str, str]:
        """Plain strings (still CDK tokens at synth)."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: str) -> StackOutput:
        """Read what a stack says; keys that only a newer version knows are passed over.

        ValueError names what is missing.
        """
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f"the stack's output is not JSON: {text[:200]!r}") from error
        if not isinstance(value, Mapping):
            raise ValueError(f"the stack's output must be an object, got {value!r}")
        names = [field.name for field in fields(cls)]
        for name in names:
            if not isinstance(value.get(name), str):
                raise ValueError(
                    f"the stack's output lacks a text {name!r}, got {value.get(name)!r}; deploy "
                    "the stack again with this version of cdk-blackwell"
                )
        return cls(**{name: value[name] for name in names})


# --- Exit codes of the command line --------------------------------------------------------------

EXIT_DONE: Final = 0
EXIT_CHECK_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_DOES_NOT_FIT: Final = 3
EXIT_AWS_REFUSED: Final = 4
EXIT_INTERRUPTED: Final = 130
