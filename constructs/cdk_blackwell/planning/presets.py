"""Published models by name, smallest first.

Each line names the Hugging Face repository whose ``config.json`` has these values, and ends with
the number of parameters published with its weights (a tied head counted once), which a test holds
the rest to. What the models of a table share stands above it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from cdk_blackwell.planning.model_shape import ModelShape, RopeScaling
from cdk_blackwell.planning.tiers import LARGE_SHARDED


class Preset(NamedTuple):
    """A published model."""

    shape: ModelShape
    repository: str | None
    """On the Hugging Face hub; None for the one shape that nobody published."""
    published_parameters: int | None
    """What its publisher counts."""


_COLUMNS: Final = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)
_UNPUBLISHED: Final = "-"
"""Stands for a repository and a count that there are none of."""


def _read(table: str, **shared: Any) -> Iterator[Preset]:
    for line in table.strip().splitlines():
        name, repository, *sizes, parameters = line.split()
        numbers: dict[str, Any] = dict(zip(_COLUMNS, map(int, sizes), strict=True))
        published = repository != _UNPUBLISHED
        yield Preset(
            shape=ModelShape(name=name, **numbers, **shared),
            repository=repository if published else None,
            published_parameters=int(parameters.replace(",", "")) if published else None,
        )


def _llama_3(factor: float) -> dict[str, Any]:
    """What Llama 3.1 (stretched by 8) and Llama 3.2 (by 32) share."""
    return {
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "rope_theta": 500_000.0,
        "rms_norm_eps": 1e-5,
        "rope_scaling": RopeScaling(
            factor=factor,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=8192,
        ),
    }


_QWEN_2_5: Final = {"rope_theta": 1_000_000.0, "attention_bias": True}
_QWEN_3: Final = {
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "rope_theta": 1_000_000.0,
    "rms_norm_eps": 1e-6,
    "qk_norm": "head",
}

_ALL: Final = (
    *_read(
        """
        llama-3.2-1b  meta-llama/Llama-3.2-1B  2048  8192  16  32  8   64  1,235,814,400
        llama-3.2-3b  meta-llama/Llama-3.2-3B  3072  8192  28  24  8  128  3,212,749,824
        """,
        **_llama_3(32.0),
        tie_word_embeddings=True,
    ),
    # The 64B is Llama-3.1-70B with 72 instead of 80 blocks: no published model, so no outside count
    *_read(
        """
        llama-3.1-8b  meta-llama/Llama-3.1-8B  4096  14336  32  32  8  128   8,030,261,248
        llama-3-64b   -                        8192  28672  72  64  8  128               -
        """,
        **_llama_3(8.0),
        tie_word_embeddings=False,
    ),
    *_read(
        """
        llama-2-7b   meta-llama/Llama-2-7b-hf   4096  11008  32  32  32  128   6,738,415,616
        llama-2-13b  meta-llama/Llama-2-13b-hf  5120  13824  40  40  40  128  13,015,864,320
        """,
        vocab_size=32_000,
        max_position_embeddings=4096,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    ),
    *_read(
        "yi-34b  01-ai/Yi-34B  7168  20480  60  56  8  128  34,388,917,248",
        vocab_size=64_000,
        max_position_embeddings=4096,
        rope_theta=5_000_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    ),
    *_read(  # its window of 4,096 tokens is left out: every token attends to all before it
        "mistral-7b-v0.1  mistralai/Mistral-7B-v0.1  4096  14336  32  32  8  128  7,241,732,096",
        vocab_size=32_000,
        max_position_embeddings=32_768,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    ),
    *_read(
        "mistral-7b  mistralai/Mistral-7B-v0.3  4096  14336  32  32  8  128  7,248,023,552",
        vocab_size=32_768,
        max_position_embeddings=32_768,
        rope_theta=1_000_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    ),
    *_read(
        "mistral-small-24b  mistralai/Mistral-Small-24B-Base-2501"
        "  5120  32768  40  32  8  128  23,572,403,200",
        vocab_size=131_072,
        max_position_embeddings=32_768,
        rope_theta=100_000_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    ),
    *_read(
        """
        qwen2.5-0.5b  Qwen/Qwen2.5-0.5B   896   4864  24  14  2   64    494,032,768
        qwen2.5-3b    Qwen/Qwen2.5-3B    2048  11008  36  16  2  128  3,085,938,688
        """,
        **_QWEN_2_5,
        vocab_size=151_936,
        max_position_embeddings=32_768,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
    ),
    *_read(
        "qwen2.5-1.5b  Qwen/Qwen2.5-1.5B  1536  8960  28  12  2  128  1,543,714,304",
        **_QWEN_2_5,
        vocab_size=151_936,
        max_position_embeddings=131_072,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
    ),
    *_read(
        "qwen2.5-7b  Qwen/Qwen2.5-7B  3584  18944  28  28  4  128  7,615,616,512",
        **_QWEN_2_5,
        vocab_size=152_064,
        max_position_embeddings=131_072,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
    ),
    *_read(
        """
        qwen2.5-14b  Qwen/Qwen2.5-14B  5120  13824  48  40  8  128  14,770,033,664
        qwen2.5-32b  Qwen/Qwen2.5-32B  5120  27648  64  40  8  128  32,763,876,352
        """,
        **_QWEN_2_5,
        vocab_size=152_064,
        max_position_embeddings=131_072,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    ),
    *_read(
        """
        qwen3-0.6b  Qwen/Qwen3-0.6B  1024  3072  28  16  8  128    596,049,920
        qwen3-1.7b  Qwen/Qwen3-1.7B  2048  6144  28  16  8  128  1,720,574,976
        qwen3-4b    Qwen/Qwen3-4B    2560  9728  36  32  8  128  4,022,468,096
        """,
        **_QWEN_3,
        tie_word_embeddings=True,
    ),
    *_read(
        """
        qwen3-8b   Qwen/Qwen3-8B   4096  12288  36  32  8  128   8,190,735,360
        qwen3-14b  Qwen/Qwen3-14B  5120  17408  40  40  8  128  14,768,307,200
        qwen3-32b  Qwen/Qwen3-32B  5120  25600  64  64  8  128  32,762,123,264
        """,
        **_QWEN_3,
        tie_word_embeddings=False,
    ),
    *_read(
        """
        olmo-2-1b   allenai/OLMo-2-0425-1B   2048   8192  16  16  16  128   1,484,916,736
        olmo-2-7b   allenai/OLMo-2-1124-7B   4096  11008  32  32  32  128   7,298,617,344
        olmo-2-13b  allenai/OLMo-2-1124-13B  5120  13824  40  40  40  128  13,716,198,400
        olmo-2-32b  allenai/OLMo-2-0325-32B  5120  27648  64  40   8  128  32,234,279,936
        """,
        vocab_size=100_352,
        max_position_embeddings=4096,
        rope_theta=500_000.0,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
        qk_norm="full",
        norm_placement="post",
    ),
)

_BY_SIZE: Final = sorted(_ALL, key=lambda preset: preset.shape.parameter_count)
PRESETS: Final = {preset.shape.name: preset for preset in _BY_SIZE}
"""Name -> preset, smallest first."""


def find_preset(name: str) -> ModelShape:
    """See ``ModelShape.preset``."""
    found = _by_spelling().get(_spelling(name))
    if found is None:
        raise ValueError(f"model {name[:60]!r} is not a preset{_why_not(name)}")
    return found.shape


def _by_spelling() -> dict[str, Preset]:
    names = {_spelling(name): preset for name, preset in PRESETS.items()}
    repositories = {_spelling(p.repository): p for p in _BY_SIZE if p.repository is not None}
    return repositories | names


def _spelling(name: str) -> str:
    """Letters and digits of the name, without the owner of a repository."""
    return re.sub("[^a-z0-9]", "", name.lower().rpartition("/")[2])


def _why_not(name: str) -> str:
    """What its name says against it; where that is nothing, what can be given instead."""
    low = name.lower()
    if re.search(r"\db-a\d+b|\d+x\d+b", low):
        return ": its name is that of a mixture of experts, and only dense decoders are supported"
    size = re.search(r"(?<![\w.])(\d{1,6}(?:\.\d+)?)b(?![a-z0-9])", low)
    if size and float(size[1]) * 1e9 > LARGE_SHARDED.up_to_parameters:
        return f": its name says {size[1]}B, and the largest tier is {LARGE_SHARDED.sizes}"
    close = difflib.get_close_matches(low, PRESETS, n=3)
    meant = f" (did you mean {' or '.join(close)}?)" if close else ""
    return (
        f"{meant}; known are {', '.join(PRESETS)}; any other dense decoder of the llama, mistral, "
        "qwen2, qwen3 or olmo2 family can be given by its Hugging Face config.json"
    )
