"""``run.json``: everything the trainer reads about a run, frozen in S3 at launch.

The constructs write it, the controller adds ``run_id``, the trainer reads this and nothing else.
Reading is strict: an unknown key, a missing key or a value of the wrong type is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import isfinite
from typing import Any, Final, Literal

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from cdk_blackwell.planning.contracts import (
    SCHEMA_VERSION,
    Tier,
    check_job_prefix,
    check_run_id,
)
from cdk_blackwell.planning.json_text import parse_json
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.strict_json import plain, read_dataclass

Precision = Literal["bf16", "fp32", "fp8", "fp8_rowwise", "mxfp8"]
"""Of the blocks' matrix products; embedding, norms and head are bf16 at least, weights fp32.

``fp8`` scales whole tensors and gathers weights in 8 bits; ``fp8_rowwise`` scales rows and gathers
in 16; ``mxfp8`` scales groups of 32 numbers, which only Blackwell's tensor cores do. ``fp32``
multiplies as TF32 on GPUs, the widest format of their tensor cores.
"""
EIGHT_BIT: Final[frozenset[Precision]] = frozenset({"fp8", "fp8_rowwise", "mxfp8"})
OptimizerImplementation = Literal["fused", "foreach"]
GradientSync = Literal["micro_batch", "step"]
LossPolicy = Literal["warn", "skip", "stop"]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """AdamW, linear warm-up, cosine decay; the recipe's own values are ``default_optimizer``'s."""

    peak_learning_rate: float
    """Above 0, at most 1; reached at the end of the warm-up."""
    minimum_learning_rate_ratio: float
    """Learning rate at the last step as a fraction of the peak."""
    warmup_steps: int
    """Optimizer steps of linear rise from 0."""
    beta1: float
    beta2: float
    """Decay of the first and of the second moment, 0 up to below 1."""
    epsilon: float
    weight_decay: float
    """Applied to matrices only, never to norms, biases or embeddings."""
    gradient_clip_norm: float
    """Global L2 norm above which all gradients are scaled down."""
    implementation: OptimizerImplementation = "fused"
    """``foreach`` updates all parameters at once and needs a further fp32 copy of them."""

    def __post_init__(self) -> None:
        _check_range(self, "peak_learning_rate", above=0, most=1)
        _check_range(self, "minimum_learning_rate_ratio", least=0, most=1)
        _check_range(self, "warmup_steps", least=0)
        _check_range(self, "beta1", least=0, below=1)
        _check_range(self, "beta2", least=0, below=1)
        _check_range(self, "epsilon", above=0, most=1)
        _check_range(self, "weight_decay", least=0, most=1)
        _check_range(self, "gradient_clip_norm", above=0)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The five groups of decisions, as values; the same object as in ``plan --json``."""

    precision: Precision
    sequence_length: int
    """Tokens per sequence."""
    global_batch_tokens: int
    """Tokens per optimizer step over all ranks; a multiple of ``sequence_length``."""
    micro_batch_size: int
    """Sequences per data-parallel rank and forward pass at the start; accumulation does the rest.
    """
    activation_checkpointing: str
    """``none``, ``selective``, ``full`` or ``every:K`` (every K-th block in full)."""
    loss_chunks: int
    """Pieces the logits are computed in, so that they never exist as a whole."""
    compile: bool
    """torch.compile per block; ignored on CPU."""
    seed: int
    """Of initial weights and of the order of the data."""
    optimizer: Optimizer
    batch_growth: tuple[int, ...] = ()
    """Larger micro-batches to grow to, in order, while measured memory allows; each divides the
    sequences that a data-parallel rank has per step, so the global batch never changes."""
    bf16_edge_blocks: int = 0
    """So many of the first and as many of the last blocks keep bf16 where the others compute in 8
    bits: for a loss that 8 bits disturb, at the cost of those blocks' share of the speed."""

    def __post_init__(self) -> None:
        for name in ("sequence_length", "global_batch_tokens", "micro_batch_size"):
            _check_range(self, name, least=1)
        sizes = (self.micro_batch_size, *self.batch_growth)
        # More pieces than tokens: most would be empty.
        _check_range(self, "loss_chunks", least=1, most=max(sizes) * self.sequence_length)
        _check_range(self, "seed", least=0, below=2**63)
        _check_range(self, "bf16_edge_blocks", least=0)
        checkpointing_interval(self.activation_checkpointing)
        if self.global_batch_tokens % self.sequence_length:
            raise ValueError(
                f"global_batch_tokens is {self.global_batch_tokens}; it must be a multiple of "
                f"sequence_length {self.sequence_length}"
            )
        if any(later <= earlier for earlier, later in pairwise(sizes)):
            raise ValueError(
                f"batch_growth is {list(self.batch_growth)}; every size must be larger than the "
                f"one before it, beginning above micro_batch_size {self.micro_batch_size}"
            )
        sequences = self.global_batch_tokens // self.sequence_length
        if self.batch_growth and self.batch_growth[-1] > sequences:
            raise ValueError(
                f"batch_growth ends with {self.batch_growth[-1]}; it must be at most {sequences}, "
                "the sequences of a step"
            )

    def bf16_blocks(self, blocks: int) -> int:
        """How many of a model's ``blocks`` keep bf16 in an 8-bit precision; 0 in any other."""
        return min(blocks, 2 * self.bf16_edge_blocks) if self.precision in EIGHT_BIT else 0


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How ranks divide the work."""

    shard_gpus: int
    """Ranks that share one copy of the parameters (context-parallel ranks counted in)."""
    replicas: int
    """Copies of the parameters, reduced once per step (HSDP)."""
    context_parallel: int
    """Ranks that share one sequence."""
    tensor_parallel: int
    """Ranks that share each matrix; multiplies the number of GPUs."""
    ulysses: int = 1
    """Ranks of a context-parallel group that exchange heads for tokens; the remaining factor
    ``context_parallel // ulysses`` gathers keys and values."""
    reshard_after_forward: bool = True
    """False keeps the gathered weights from the first micro-batch of a step to the last."""
    gradient_sync: GradientSync = "micro_batch"
    """``step`` accumulates whole fp32 gradients on every rank and reduces them once per step."""

    def __post_init__(self) -> None:
        for name in ("shard_gpus", "replicas", "context_parallel", "tensor_parallel", "ulysses"):
            _check_range(self, name, least=1)
        if self.shard_gpus % self.context_parallel:
            raise ValueError(
                f"context_parallel is {self.context_parallel}; it must divide shard_gpus "
                f"{self.shard_gpus}"
            )
        if self.context_parallel % self.ulysses:
            raise ValueError(
                f"ulysses is {self.ulysses}; it must divide context_parallel "
                f"{self.context_parallel}"
            )

    @property
    def gpus(self) -> int:
        """Ranks in all."""
        return self.shard_gpus * self.replicas * self.tensor_parallel

    @property
    def data_parallel(self) -> int:
        """Ranks that read different sequences."""
        return self.shard_gpus * self.replicas // self.context_parallel


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which token shards to read."""

    channel: str
    """SageMaker channel that holds the dataset."""
    manifest: str
    """Path of the manifest inside the channel."""
    validation_sequences: int
    """Held-out sequences per validation."""

    def __post_init__(self) -> None:
        _check_range(self, "validation_sequences", least=1)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """When checkpoints are written and how many stay."""

    interval_seconds: float
    keep: int
    export: bool
    """Write a Hugging Face safetensors export when the run completes."""

    def __post_init__(self) -> None:
        _check_range(self, "interval_seconds", above=0)
        _check_range(self, "keep", least=1)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of one attempt."""

    in_cluster_restarts: int
    """torchrun's ``--max-restarts``: how often each host's agent restarts failed workers."""
    log_interval_steps: int
    validation_interval_steps: int
    hang_seconds: float = 900.0
    """Longest time without a finished micro-batch on any rank of a host before the attempt fails.
    The default is below the 20 minutes after which collectives give up by themselves, so that the
    stacks show what they wait for. Starting, saving and exporting get four times as long."""
    loss_policy: LossPolicy = "warn"
    """About a loss far above those before it: ``warn`` says so, ``skip`` leaves the step out,
    ``stop`` ends the run before it is trained on; these two wait for the GPU once per step. One
    that is no number ends the run too, but is left out under ``skip``, and under ``warn`` in 8
    bits, which may fall back to bf16."""

    def __post_init__(self) -> None:
        _check_range(self, "in_cluster_restarts", least=0)
        _check_range(self, "log_interval_steps", least=1)
        _check_range(self, "validation_interval_steps", least=1)
        _check_range(self, "hang_seconds", above=0)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run. ``to_json`` and ``from_json`` are inverse."""

    schema_version: int
    run_id: str
    job: str
    tier: Tier
    model: ModelShape
    recipe: Recipe
    layout: Layout
    data: Data
    train_tokens: int
    checkpoint: Checkpoint
    limits: Limits

    def __post_init__(self) -> None:
        check_run_id(self.run_id)
        check_job_prefix(self.job)
        _check_range(self, "train_tokens", least=1)

    @property
    def global_batch_sequences(self) -> int:
        """Sequences per optimizer step over all ranks."""
        return self.recipe.global_batch_tokens // self.recipe.sequence_length

    @property
    def train_steps(self) -> int:
        """Optimizer steps that cover ``train_tokens``, the last one complete."""
        return -(-self.train_tokens // self.recipe.global_batch_tokens)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {key: plain(value) for key, value in asdict(self).items()}

    def to_json(self) -> str:
        """Indented JSON with sorted keys, so that equal runs give equal bytes."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> RunSpec:
        """Read strictly; ValueError names the offending key."""
        version = value.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"run.json has schema_version {version!r}; this trainer reads {SCHEMA_VERSION}. "
                "Launch a new run with the library version that wrote it, or upgrade the bundle."
            )
        spec = read_dataclass(cls, value, "run.json")
        assert isinstance(spec, cls)
        return spec

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Parse ``run.json``; ValueError when it is not one."""
        value = parse_json(text, what="run.json")
        if not isinstance(value, dict):
            raise ValueError("run.json must hold one JSON object")
        return cls.from_dict(value)

    def hyperparameters(self) -> dict[str, str]:
        """A flat, underscore-named copy of the scalars, for people and SageMaker's console.

        Nothing reads them back. SageMaker allows 100 entries of at most 2,500 characters.
        """
        flat: dict[str, str] = {}

        def walk(prefix: str, value: Any) -> None:
            if isinstance(value, Mapping):
                for key, item in value.items():
                    walk(f"{prefix}_{key}" if prefix else key, item)
            elif value is not None:
                flat[prefix] = str(value).lower() if isinstance(value, bool) else str(value)

        walk("", self.to_dict())
        return flat


def _check_range(
    owner: object,
    name: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> None:
    value = getattr(owner, name)
    # Recipes and layouts are made by the thousand in a search: words only where a check fails.
    broken = [] if isfinite(value) else ["a finite number"]
    if least is not None and not value >= least:
        broken.append(f"at least {least}")
    if above is not None and not value > above:
        broken.append(f"above {above}")
    if most is not None and not value <= most:
        broken.append(f"at most {most}")
    if below is not None and not value < below:
        broken.append(f"below {below}")
    if broken:
        raise ValueError(f"{name} is {value!r}; it must be {' and '.join(broken)}")
