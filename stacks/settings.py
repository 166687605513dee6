"""Context values (``cdk.json`` or ``-c key=value``) as one checked object.

Every key is a field of ``Settings``; the command line gives text, ``cdk.json`` may give numbers
and booleans too. A key that looks like a misspelt one is refused, because it would be ignored
without a word; any other unknown key is somebody else's (the CDK's own, ``~/.cdk.json``).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Precision

_MISSPELT: Final = 0.8
"""Likeness (difflib's ratio) from which an unknown key is taken for a misspelt one."""
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+")
_TRUE: Final = {"true", "1", "yes"}
_FALSE: Final = {"false", "0", "no"}


class SettingsError(ValueError):
    """A context value that cannot be used: one line, what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the example application can be told. Every field is a context key."""

    account: str | None = None
    """Account to deploy to. Default: the command line's credentials decide."""
    region: str | None = None
    """Region to deploy to. Default: the command line's profile decides."""
    availability_zone: str | None = None
    """Zone with B200 capacity, such as us-west-2b. Default: the region's first, with a warning.

    Fixed for a foundation: another zone needs another foundation, in a stack of another name."""
    storage_gib: int = 1200
    """Size of the file system: 1200 or a multiple of 2400 GiB."""
    throughput_per_tib: int = 250
    """Speed of the file system: 125, 250, 500 or 1000 MB/s per TiB."""

    model: str = "llama-3.2-1b"
    """Name of a preset, or path of a Hugging Face ``config.json``."""
    dataset_prefix: str = "tokens/"
    """Key prefix in the dataset bucket that holds ``manifest.json``."""
    sequence_length: int = 8192
    """Tokens per sequence."""
    global_batch_tokens: int = 1_048_576
    """Tokens per optimizer step over all GPUs; a multiple of ``sequence_length``."""
    train_tokens: int = 20_000_000_000
    """Tokens to train on."""
    run_id: str | None = None
    """Change it to launch a run. Default: define without launching."""

    precision: Precision | None = None
    """``bf16`` or ``fp32``. Default: the recipe decides."""
    micro_batch_size: int | None = None
    """Sequences per GPU and forward pass. Default: the recipe decides."""
    activation_checkpointing: str | None = None
    """``none``, ``selective``, ``full`` or ``every:K``. Default: the recipe decides."""
    peak_learning_rate: float | None = None
    """Peak of the cosine schedule. Default: the recipe decides."""
    warmup_steps: int | None = None
    """Steps of linear warm-up. Default: the recipe decides."""

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

    training_plan_arn: str | None = None
    """Training plan that holds the instances. Default: on demand."""
    max_pending_hours: float = 12
    """Hours a job may wait for instances, 0.5 to 672."""
    max_runtime_hours: float = 24
    """Longest time of one attempt, hours."""
    max_attempts: int = 3
    """How often one run may be launched."""
    hourly_price_usd: float | None = None
    """Price of one instance per hour. Default: unknown, cost is not shown."""
    max_cost_usd: float | None = None
    """Refuse when all attempts together can cost more. Default: no ceiling."""

    image: str | None = None
    """URI of the training image. Default: AWS's PyTorch 2.13 image for SageMaker."""
    wheelhouse: str | None = None
    """Folder with the wheels the image lacks. Default: ``wheelhouse`` in the working directory."""
    packages_in_image: bool = False
    """The image holds the locked packages, no wheels travel."""

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> Settings:
        """Read and check; SettingsError names the key, the value got and what is allowed."""
        known = sorted(field.name for field in fields(cls))
        for key in sorted(set(context) - set(known)):
            near = difflib.get_close_matches(key, known, cutoff=_MISSPELT)
            if near:
                raise SettingsError(
                    f"context key {key!r} is unknown: did you mean {' or '.join(sorted(near))}?"
                )
        hints = get_type_hints(cls)
        values = {
            key: _read(key, context[key], hints[key])
            for key in known
            if context.get(key) not in (None, "")
        }
        return cls(**values)

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

    def model_shape(self) -> ModelShape:
        """The model; SettingsError when it is neither a preset nor a readable ``config.json``."""
        if self.model in ModelShape.preset_names():
            return ModelShape.preset(self.model)
        path = Path(self.model)
        if not path.exists():
            raise SettingsError(
                f"model {self.model!r} is neither a preset ({', '.join(ModelShape.preset_names())})"
                " nor an existing config.json"
            )
        return ModelShape.from_hugging_face_config(path)


def _read(key: str, value: Any, hint: Any) -> Any:
    if hint in (str, str | None):
        return _text(key, value)
    if hint == Precision | None:
        return _choice(key, value, get_args(Precision))
    if hint is bool:
        return _boolean(key, value)
    if hint in (int, int | None):
        return _number(key, value, int)
    return _number(key, value, float)


def _text(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    # An account of digits only is read as a number from cdk.json.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise SettingsError(f"context {key} is {json.dumps(value)}: text is expected")


def _choice(key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise SettingsError(f"context {key} is {value!r}: allowed are {', '.join(allowed)}")
    return str(value)


def _boolean(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise SettingsError(f"context {key} is {value!r}: true or false is expected")


def _number(key: str, value: Any, kind: type[int] | type[float]) -> int | float:
    wanted = "a whole number" if kind is int else "a number"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SettingsError(f"context {key} is {json.dumps(value)}: {wanted} is expected")
    try:
        plain = isinstance(value, str) and kind is int and value.strip().lstrip("-").isdigit()
        # Text of digits is exact however long; float would round it.
        number = int(value) if plain else float(value)
        exact = kind(number)
    except (ValueError, OverflowError) as error:
        raise SettingsError(f"context {key} is {value!r}: {wanted} is expected") from error
    if number != number or number in (float("inf"), float("-inf")) or exact != number:
        raise SettingsError(f"context {key} is {value!r}: {wanted} is expected")
    if number < 0:
        raise SettingsError(f"context {key} is {value!r}: it cannot be negative")
    return exact
