"""Several datasets as one: a manifest that lists them with their weights."""

from __future__ import annotations

import math
from pathlib import Path

from cdk_blackwell.planning.contracts import DATASET_MANIFEST_FILE
from preparation.errors import InputError
from trainer.manifest import (
    SPLIT_TRAIN,
    Manifest,
    Source,
    file_sha256,
    mixture_text,
    write_whole,
)
from trainer.mixture import quotas


def write_mixture(folder: Path, weights: list[str]) -> Manifest:
    """Write the manifest of ``NAME=WEIGHT`` datasets in folders below ``folder``."""
    sources = [_source(folder, text) for text in weights]
    if not math.isfinite(sum(source.weight for source in sources)):
        raise InputError("--mix: the weights add up to more than a number can hold")
    names = [source.folder for source in sources]
    if len(set(names)) < len(names):
        raise InputError(f"--mix names a dataset twice: {', '.join(names)}")
    path = folder / DATASET_MANIFEST_FILE
    draft = path.with_name(f".{path.name}.draft")
    try:
        quotas([source.weight for source in sources])
        # Checked by reading it the way the trainer does, before it gets its name.
        write_whole(draft, mixture_text(sources))
        result = Manifest.read(draft)
    except ValueError as error:
        draft.unlink(missing_ok=True)
        raise InputError(str(error).replace(str(draft), str(path))) from error
    draft.replace(path)
    return result


def describe_mixture(manifest: Manifest) -> str:
    """Each source's share and training tokens, for people."""
    total = sum(source.weight for source in manifest.sources)
    return ", ".join(
        f"{source.folder} {source.weight / total:.1%} of "
        f"{_tokens(manifest, source.folder):,} tokens"
        for source in manifest.sources
    )


def _tokens(manifest: Manifest, folder: str) -> int:
    shards = manifest.splits[SPLIT_TRAIN]
    return sum(shard.tokens for shard in shards if Path(shard.file).parent == Path(folder))


def _source(folder: Path, text: str) -> Source:
    name, _, weight = text.rpartition("=")
    try:
        share = float(weight)
    except ValueError:
        share = 0.0
    if not name or not share > 0:
        raise InputError(f"--mix {text!r}: NAME=WEIGHT is needed, with a weight above 0")
    place = folder / name / DATASET_MANIFEST_FILE
    if not place.is_file():
        raise InputError(
            f"--mix {text!r}: {place} does not exist; prepare each dataset into a folder of its "
            "name below --output first"
        )
    return Source(folder=name, weight=share, manifest_sha256=file_sha256(place))
