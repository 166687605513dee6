"""Where things lie in the container. Standard library only; the launcher imports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cdk_blackwell.planning.contracts import (
    CHANNEL_CONFIG,
    CONTAINER_CHECKPOINTS,
    CONTAINER_ROOT,
    ENV_ATTEMPT,
    ENV_CHECKPOINT_DIR,
    ENV_ROOT,
    ENV_RUN_S3,
    ENV_TRIAL_CANDIDATE,
    RUN_FILE,
    rebase_container_path,
)
from cdk_blackwell.planning.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Container:
    """SageMaker's tree, at ``/opt/ml`` or wherever ``CDKB_ROOT`` moves it."""

    root: Path
    checkpoints: Path
    run_uri: str | None
    """``s3://bucket/<job>/runs/<run_id>``; None away from SageMaker."""
    attempt: int
    region: str | None = None
    """AWS Region of the job."""
    restarts: int = 0
    """How often torchrun has started this rank again within the attempt."""
    candidate: Path | None = None
    """Folder of the trial's candidate that these ranks are; None in a run that trains."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Container:
        """Read the contract's variables."""
        root = Path(environment.get(ENV_ROOT, CONTAINER_ROOT))
        checkpoints = environment.get(ENV_CHECKPOINT_DIR, CONTAINER_CHECKPOINTS)
        attempt = environment.get(ENV_ATTEMPT, "1")
        restarts = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        folder = environment.get(ENV_TRIAL_CANDIDATE)
        candidate = Path(folder) if folder else None
        kept = rebase_container_path(checkpoints, root)
        return cls(
            root=root,
            # Nothing of a candidate may be taken for the run's: neither checkpoints nor progress.
            checkpoints=candidate / "checkpoints" if candidate else kept,
            run_uri=None if candidate else environment.get(ENV_RUN_S3) or None,
            candidate=candidate,
            attempt=int(attempt) if attempt.isdecimal() else 1,
            restarts=int(restarts) if restarts.isdecimal() else 0,
            region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"),
        )

    def channel(self, name: str) -> Path:
        """Folder of an input channel."""
        return self.root / "input" / "data" / name

    @property
    def resource_config(self) -> Path:
        """Hosts of this job."""
        return self.root / "input" / "config" / "resourceconfig.json"

    @property
    def failure_file(self) -> Path:
        """Its text becomes FailureReason."""
        return self.root / "output" / "failure"

    @property
    def output_data(self) -> Path:
        """Uploaded at the end."""
        return (self.candidate or self.root / "output") / "data"

    @property
    def model(self) -> Path:
        """Uploaded at the end as the job's model."""
        return self.root / "model"

    def read_run_spec(self) -> RunSpec:
        """``run.json``; ValueError says what is wrong with it."""
        path = (self.candidate or self.channel(CHANNEL_CONFIG)) / RUN_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(
                f"{path} cannot be read ({error.strerror}): the job needs channel "
                f"{CHANNEL_CONFIG!r} with {RUN_FILE}"
            ) from error
        return RunSpec.from_json(text)
