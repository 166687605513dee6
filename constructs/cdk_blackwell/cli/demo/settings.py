"""What the demo trains, and how small it is made to fit two CPU cores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cdk_blackwell.planning.model_shape import ModelShape

REGION: Final = "us-west-2"
AVAILABILITY_ZONE: Final = "us-west-2a"
FOUNDATION_STACK: Final = "FoundationStack"
JOB_STACK: Final = "SmallModelStack"
RUN_ID: Final = "first-light"
RANKS: Final = 2

SEQUENCE_LENGTH: Final = 256
GLOBAL_BATCH_TOKENS: Final = 16 * SEQUENCE_LENGTH
STEPS: Final = 200
VOCABULARY: Final = 4096
MINIMUM_TOKENS: Final = 2_000_000
MAXIMUM_TOKENS: Final = 3_000_000
DATASET_PREFIX: Final = "tokens"

CHECKPOINT_INTERVAL_SECONDS: Final = 15
KILL_AFTER_STEP: Final = 80
"""The workers are killed at the first complete checkpoint at or after this step."""

REQUIRED_LOSS_FALL: Final = 0.30
"""Validation loss must fall by this fraction of its start."""

MARKER_FILE: Final = ".cdk-blackwell-demo"
"""Marks a folder as the demo's own, to be replaced; any other filled folder is refused."""

FREE_DISK_BYTES: Final = 2 * 1024**3
"""Assembly, shards, two job folders with checkpoints and an export, with room to spare."""


@dataclass(frozen=True, kw_only=True)
class DemoFolders:
    """Where the demo writes: everything below one folder, replaced by the next run."""

    root: Path

    @property
    def logs(self) -> Path:
        """Output of every command, whole."""
        return self.root / "logs"

    @property
    def assembly(self) -> Path:
        """Synthesised templates and assets."""
        return self.root / "cdk.out"

    @property
    def tokens(self) -> Path:
        """Token shards with their manifest."""
        return self.root / "tokens"

    @property
    def aws_state(self) -> Path:
        """The embedded AWS's own state, with every training job's container folder."""
        return self.root / "aws"

    @property
    def export(self) -> Path:
        """The Hugging Face export, downloaded from the emulated S3."""
        return self.root / "export"

    @property
    def model_config(self) -> Path:
        """``config.json`` of the shrunk model."""
        return self.root / "config.json"

    @property
    def summary(self) -> Path:
        """``summary.json``."""
        return self.root / "summary.json"


def shrink(shape: ModelShape) -> ModelShape:
    """A few million parameters of the same family.

    The family's traits stay (query heads per key-value head, feed-forward ratio, RoPE base, tied
    embeddings, norm epsilon); width, depth and vocabulary shrink, and long-context RoPE scaling
    goes with the long context.
    """
    hidden_size, heads = 192, 8
    queries_per_kv = shape.num_attention_heads // shape.num_key_value_heads
    ratio = shape.intermediate_size / shape.hidden_size
    return replace(
        shape,
        name=f"{shape.name}-demo",
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        intermediate_size=32 * round(ratio * hidden_size / 32),
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // queries_per_kv),
        head_dim=hidden_size // heads,
        max_position_embeddings=SEQUENCE_LENGTH,
        rope_scaling=None,
    )


def context(*, folders: DemoFolders, wheelhouse: Path) -> dict[str, str]:
    """Context values of the demo's deployment, by ``stacks/settings.py``'s keys."""
    return {
        "region": REGION,
        "availability_zone": AVAILABILITY_ZONE,
        "model": str(folders.model_config),
        "dataset_prefix": DATASET_PREFIX,
        "sequence_length": str(SEQUENCE_LENGTH),
        "global_batch_tokens": str(GLOBAL_BATCH_TOKENS),
        "train_tokens": str(STEPS * GLOBAL_BATCH_TOKENS),
        "run_id": RUN_ID,
        # Nothing is billed here.
        "waive_cost_ceiling": "true",
        # CPUs without BF16 units run BF16 matrix products about 80 times slower than FP32 ones.
        "precision": "fp32",
        "peak_learning_rate": "2e-3",
        "warmup_steps": "20",
        "checkpoint_interval_seconds": str(CHECKPOINT_INTERVAL_SECONDS),
        "validation_interval_steps": "100",
        "log_interval_steps": "5",
        # The workers are killed once; here the controller, not torchrun, is to bring them back.
        "in_cluster_restarts": "0",
        "wheelhouse": str(wheelhouse),
    }
