"""The planner speaks of settings by their names in Python; people here gave options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

FLAGS: Final = {
    "sequence_length": "--sequence-length",
    "global_batch_tokens": "--global-batch-tokens",
    "train_tokens": "--train-tokens",
    "tier": "--tier",
    "instance_count": "--nodes",
    "gpus": "--gpus",
    "shard_gpus": "--shard-gpus",
    "context_parallel": "--context-parallel",
    "ulysses": "--ulysses",
    "tensor_parallel": "--tensor-parallel",
    "gradient_sync": "--gradient-sync",
    "precision": "--precision",
    "micro_batch_size": "--micro-batch-size",
    "activation_checkpointing": "--activation-checkpointing",
    "loss_chunks": "--loss-chunks",
    "bf16_edge_blocks": "--bf16-edge-blocks",
    "optimizer_implementation": "--optimizer",
    "hourly_price_usd": "--hourly-price-usd",
    "max_cost_usd": "--max-cost-usd",
}
"""Names of the planner's settings -> options that take the same value."""

_SWITCHES: Final = {
    ("reshard_after_forward", True): "--reshard",
    ("reshard_after_forward", False): "--keep-weights",
    ("compile", False): "--eager",
}
"""Settings that are options without a value."""

# Names that are plain words too ("512 gpus", "the tier") stay as they are.
_UNMISTAKABLE: Final = "|".join(name for name in FLAGS if "_" in name)
_SUBJECTS: Final = "|".join(name for name in FLAGS if "_" not in name)
# Before its value in a proposed change it is a setting: "use gpus 8 with ulysses 2".
_PROPOSED: Final = (
    rf"(?:(?<=use )|(?<=or )|(?<=with ))(?:{_SUBJECTS})(?= (?:\d|bf16|fp32|fp8|mxfp8))"
)
_LEFT_OUT: Final = rf"(?:(?<=leave out )|(?<= and ))(?:{_SUBJECTS})(?=$| and )"
_NAMES: Final = re.compile(
    rf"(?<![\w-])(?P<name>{_UNMISTAKABLE}|(?:{_SUBJECTS})(?= is \S)|{_PROPOSED}|{_LEFT_OUT})(?!\w)"
)


def in_flags(message: str) -> str:
    """The planner's message with options in place of settings' names."""
    message = re.sub(r"\breshard_after_forward (True|False)\b", _switch, message)
    return _NAMES.sub(lambda match: FLAGS[match["name"]], message)


def _switch(match: re.Match[str]) -> str:
    return _SWITCHES["reshard_after_forward", match[1] == "True"]


def command_words(settings: Mapping[str, Any]) -> str:
    """Settings as words of a command; None is an option to leave out."""
    words = []
    for name, value in settings.items():
        if (name, value) in _SWITCHES:
            words.append(_SWITCHES[name, value])
        elif name in FLAGS and value is not None:
            words.append(f"{FLAGS[name]} {value}")
        elif name in FLAGS:
            words.append(f"no {FLAGS[name]}")
    return " ".join(words)
