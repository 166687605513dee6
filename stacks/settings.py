"""Context values (``cdk.json`` or ``-c key=value``) as checked objects.

Keys of the application are the fields of ``Settings``; keys of a job are those of ``JobSettings``.
A job's key holds for every tier of the application, and with a tier's prefix (``small_``, ``mid_``,
``large_``) for that tier alone: ``-c sequence_length=8192 -c large_sequence_length=131072``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.json_text import is_there
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import GradientSync, Precision
from cdk_blackwell.planning.storage_needs import StorageNeeds, storage_needs
from cdk_blackwell.planning.tiers import TIERS, tier_for
from cdk_blackwell.planning.trial import TrialReport
from stacks.context import SettingsError, read_value, refuse_misspelt

_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+")
ALL_TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
PREFIXES: Final[Mapping[Tier, str]] = {"small": "small_", "mid": "mid_", "large-sharded": "large_"}


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What one tier's job can be told. Every field is a context key, alone or with a prefix."""

    model: str
    """Name of a preset, or path of a Hugging Face ``config.json``. Default: llama-3.2-1b,
    llama-3.1-8b or qwen2.5-32b, by tier."""
    dataset_prefix: str = "tokens/"
    """Key prefix in the dataset bucket that holds ``manifest.json``."""
    sequence_length: int = 8192
    """Tokens per sequence."""
    global_batch_tokens: int = 1_048_576
    """Tokens per optimizer step over all GPUs; a multiple of ``sequence_length``."""
    train_tokens: int = 20_000_000_000
    """Tokens to train on."""
    instance_count: int | None = None
    """Instances of 8 GPUs. Default: the fewest that the plan needs."""
    run_id: str | None = None
    """Change it to launch a run. Default: define without launching."""

    precision: Precision | None = None
    """Of the blocks' matrix products. Default: the recipe decides."""
    micro_batch_size: int | None = None
    """Sequences per GPU and forward pass. Default: the recipe decides."""
    activation_checkpointing: str | None = None
    """``none``, ``selective``, ``full`` or ``every:K``. Default: the recipe decides."""
    peak_learning_rate: float | None = None
    """Peak of the cosine schedule. Default: the recipe decides."""
    warmup_steps: int | None = None
    """Steps of linear warm-up. Default: the recipe decides."""
    shard_gpus: int | None = None
    """GPUs that share one copy of the parameters. Default: the search decides."""
    context_parallel: int | None = None
    """GPUs that share one sequence. Default: the search decides."""
    tensor_parallel: int | None = None
    """GPUs that share each matrix. Default: the search decides."""
    reshard_after_forward: bool | None = None
    """Whether gathered weights are dropped after use. Default: the search decides."""
    gradient_sync: GradientSync | None = None
    """How often gradients are reduced. Default: the search decides."""
    trial_report: str | None = None
    """Path of a ``trial.json``, whose winner decides what is left open. Default: no trial."""

    checkpoint_interval_seconds: int = 900
    """Seconds between checkpoints."""
    validation_interval_steps: int = 500
    """Steps between validations."""
    validation_sequences: int = 64
    """Held-out sequences per validation."""
    log_interval_steps: int = 10
    """Steps between metrics lines."""
    in_cluster_restarts: int = 1
    """Times torchrun restarts failed workers in place before the attempt fails."""
    hang_seconds: int = 900
    """Silence of all ranks of an instance after which the attempt fails."""
    allow_tcp: bool = False
    """Several instances without EFA train over TCP, many times slower, instead of failing."""

    training_plan_arn: str | None = None
    """Training plan that holds the instances. Default: on demand."""
    training_plan_fee_usd: float | None = None
    """What the whole plan costs. Default: unknown."""
    spot_max_wait_hours: float | None = None
    """Managed spot: run time and waiting together, hours. Default: not spot."""
    keep_alive_minutes: float | None = None
    """On demand: how long instances stay, billed, for the next job. Default: not at all."""
    max_pending_hours: float = 12
    """Hours a job may wait for instances, 0.5 to 672."""
    max_runtime_hours: float = 24
    """Longest time of one attempt, hours."""
    max_attempts: int = 3
    """How often a run may get instances."""
    hourly_price_usd: float | None = None
    """Price of one instance per hour. Default: unknown; then nothing can be launched unless the
    ceiling is waived."""
    max_cost_usd: float | None = None
    """Refuse when all attempts together can cost more."""
    waive_cost_ceiling: bool = False
    """Launch without ``max_cost_usd``."""

    image: str | None = None
    """URI of the training image. Default: AWS's PyTorch 2.13 image for SageMaker."""
    wheelhouse: str | None = None
    """Folder with the wheels the image lacks. Default: ``wheelhouse`` in the working directory."""
    packages_in_image: bool = False
    """The image holds the locked packages, no wheels travel."""

    def model_shape(self) -> ModelShape:
        """The model; SettingsError when it is neither a preset nor a readable ``config.json``."""
        path = Path(self.model)
        if self.model not in ModelShape.preset_names() and is_there(path):
            return ModelShape.from_hugging_face_config(path)
        try:
            return ModelShape.preset(self.model)
        except ValueError as error:
            raise SettingsError(f"context model: there is no such file, and {error}") from error

    def measured(self) -> TrialReport | None:
        """The trial to follow, if any; SettingsError when its file is not a report."""
        if self.trial_report is None:
            return None
        try:
            return TrialReport.from_json(Path(self.trial_report).read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(
                f"context trial_report {self.trial_report!r} cannot be read: {error.strerror}"
            ) from error
        except ValueError as error:
            raise SettingsError(f"context trial_report {self.trial_report!r}: {error}") from error


DEFAULTS: Final[Mapping[Tier, Mapping[str, Any]]] = {
    "small": {"model": "llama-3.2-1b"},
    "mid": {
        "model": "llama-3.1-8b",
        "global_batch_tokens": 4_194_304,
        "train_tokens": 6_000_000_000,
    },
    "large-sharded": {
        "model": "qwen2.5-32b",
        "global_batch_tokens": 4_194_304,
        "train_tokens": 3_000_000_000,
    },
}
"""What a tier's example job is where the context is silent: predicted to end within the day that
``max_runtime_hours`` gives it, on the fewest instances. A full training takes about 20 tokens a
parameter, days and more instances."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the example application can be told."""

    account: str | None = None
    """Account to deploy to. Default: the command line's credentials decide."""
    region: str | None = None
    """Region to deploy to. Default: the command line's profile decides."""
    availability_zone: str | None = None
    """Zone with B200 capacity, such as us-west-2b. Default: the region's first, with a warning.

    Fixed for a foundation: another zone needs another foundation, in a stack of another name."""
    nat: bool = False
    """Give the network a NAT gateway."""
    storage_gib: int | None = None
    """Size of the file system: 1200 or a multiple of 2400 GiB. Default: what the tiers' data and
    checkpoints need, so it follows ``tiers``, ``model`` and ``instance_count``; FSx makes a file
    system larger but never smaller."""
    throughput_per_tib: int | None = None
    """Speed of the file system: 125, 250, 500 or 1000 MB/s per TiB. Default: likewise."""
    tiers: tuple[Tier, ...] = ALL_TIERS
    """Which tiers' stacks the application has: ``small``, ``mid``, ``large-sharded``, with commas.
    Default: all; where ``model`` is given without a prefix, the tier of its size."""
    jobs: Mapping[Tier, JobSettings] = field(
        default_factory=lambda: {tier: _read_job(tier, {}) for tier in ALL_TIERS}
    )
    """What each tier's job is told; not a context key itself."""

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Settings:
        """Read and check; SettingsError names the key, the value got and what is allowed."""
        hints = get_type_hints(cls)
        own = [item.name for item in fields(cls) if item.name != "jobs"]
        job = [item.name for item in fields(JobSettings)]
        refuse_misspelt(context, [*own, *job], PREFIXES.values())
        values = {
            key: read_value(key, context[key], hints[key]) for key in own if _given(context, key)
        }
        jobs = {tier: _read_job(tier, context) for tier in ALL_TIERS}
        if "tiers" not in values and _given(context, "model"):
            shape = replace(jobs["small"], model=str(context["model"])).model_shape()
            values["tiers"] = (tier_for(shape.parameter_count).tier,)
        return cls(**values, jobs=jobs)

    def __post_init__(self) -> None:
        if self.account is not None and not _ACCOUNT.fullmatch(self.account):
            raise SettingsError(
                f"context account is {self.account!r}: twelve digits are expected (in cdk.json "
                "within quotes, so that zeros at its start stay)"
            )
        if self.region is not None and not _REGION.fullmatch(self.region):
            raise SettingsError(
                f"context region is {self.region!r}: a region such as us-west-2 is expected"
            )

    def storage_needs(self) -> list[StorageNeeds]:
        """What the chosen tiers need of the file system; the dataset lies there once for all.

        Jobs on one instance write checkpoints to their own disks and need it for data only.
        """
        largest = max(self.jobs[tier].train_tokens for tier in self.tiers)
        needs: list[StorageNeeds] = []
        for tier in self.tiers:
            job = self.jobs[tier]
            instances = job.instance_count or TIERS[tier].minimum_instances
            if instances > 1:
                needs.append(
                    storage_needs(
                        job.model_shape(),
                        instance_count=instances,
                        dataset_tokens=0 if needs else largest,
                        interval_seconds=job.checkpoint_interval_seconds,
                    )
                )
        return needs


def _read_job(tier: Tier, context: Mapping[str, Any]) -> JobSettings:
    """The tier's own keys before those for all tiers before its defaults."""
    hints = get_type_hints(JobSettings)
    values = dict(DEFAULTS[tier])
    for item in fields(JobSettings):
        for key in (item.name, PREFIXES[tier] + item.name):
            if _given(context, key):
                values[item.name] = read_value(key, context[key], hints[item.name])
    return JobSettings(**values)


def _given(context: Mapping[str, Any], key: str) -> bool:
    return context.get(key) not in (None, "")
