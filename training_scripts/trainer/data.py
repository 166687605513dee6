"""Token shards as sequences: checked, shuffled over the whole split, sharded by rank, prefetched.

The only state is the number of sequences consumed by all ranks together. Which sequence comes next
follows from it and the seed, whatever the number of ranks.
"""

# ruff: noqa: N815 - suffixes of tensors name their dimensions
from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.errors import data_error
from trainer.head import IGNORED_TARGET
from trainer.manifest import Manifest, Shard, find_damage
from trainer.mixture import place, quotas
from trainer.shuffle import permute

PREFETCHED_STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch on the host: inputs, and the same shifted by one as targets."""

    tokens_BS: Tensor
    targets_BS: Tensor


class SequenceReader:
    """All whole sequences of one split; each reads one token more, its last target.

    In a mixture every source has its own order and its own epochs: a small source with a large
    weight is repeated, while a large one is still in its first epoch.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, split: str, *, sequence_length: int, vocab_size: int
    ) -> None:
        shards = manifest.splits.get(split, ())
        self._files = [folder / shard.file for shard in shards]
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        self._arrays = [_map(folder / shard.file, shard.tokens, dtype) for shard in shards]
        self._masks = [
            _map(folder / shard.mask_file, shard.tokens, np.dtype(np.uint8))
            if shard.mask_sha256
            else None
            for shard in shards
        ]
        counts = [max(0, (shard.tokens - 1) // sequence_length) for shard in shards]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self.longest_shard = max((shard.tokens for shard in shards), default=0)
        """Tokens."""
        self.lengths = _source_lengths(manifest, shards, counts)
        """Whole sequences per source, by its folder; one of no name unless it is a mixture."""
        weights = {"": 1.0} | {source.folder: source.weight for source in manifest.sources}
        self._quotas = quotas([weights[name] for name in self.lengths])
        self.sequence_length = sequence_length
        self.vocab_size = vocab_size
        self.positions: Tensor | None = None
        """Of each sequence's tokens, those that this rank computes; None for all."""

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def masked(self) -> bool:
        """Whether some tokens do not count in the loss."""
        return any(mask is not None for mask in self._masks)

    def at(self, positions: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
        """Sequence numbers at positions of the endless, shuffled stream."""
        lengths = list(self.lengths.values())
        if len(lengths) == 1:
            return shuffled(positions, sequences=lengths[0], seed=seed)
        sources, places = place(positions, self._quotas, seed=seed)
        out = np.empty_like(places)
        for source in np.unique(sources):
            here = sources == source
            # A seed of its own keeps sources of equal length from being shuffled alike.
            order = shuffled(places[here], sequences=lengths[source], seed=seed + int(source))
            out[here] = sum(lengths[:source]) + order
        return out

    def first(self, count: int) -> NDArray[np.int64]:
        """Numbers of the first sequences, of a mixture's sources by their shares."""
        shares = np.ceil(count * self._quotas / self._quotas.sum()).astype(np.int64)
        starts = np.cumsum([0, *self.lengths.values()])
        pieces = [
            np.arange(start, start + min(int(share), length), dtype=np.int64)
            for start, share, length in zip(starts[:-1], shares, self.lengths.values(), strict=True)
        ]
        return np.concatenate(pieces)[:count]

    def read(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """``sequence_length + 1`` token ids, and which of them count in the loss; None for all."""
        shard = int(np.searchsorted(self._ends, index, side="right"))
        first = index - (int(self._ends[shard - 1]) if shard else 0)
        start = first * self.sequence_length
        end = start + self.sequence_length + 1
        tokens = self._arrays[shard][start:end].astype(np.int64)
        if int(tokens.max()) >= self.vocab_size:
            raise data_error(
                f"dataset shard {self._files[shard]} holds token id {int(tokens.max())}, but the "
                f"model's vocab_size is {self.vocab_size}"
            )
        mask = self._masks[shard]
        return tokens, None if mask is None else mask[start:end] != 0

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        """Stack sequences; an index below 0 gives padding without any loss."""
        rows = np.zeros((len(indices), self.sequence_length + 1), dtype=np.int64)
        counts = np.ones(rows.shape, dtype=np.bool_)
        for number, index in enumerate(indices):
            if index >= 0:
                rows[number], mask = self.read(int(index))
                if mask is not None:
                    counts[number] = mask
            else:
                counts[number] = False
        tokens = torch.from_numpy(rows)
        targets = tokens[:, 1:].clone()
        targets[torch.from_numpy(~counts[:, 1:])] = IGNORED_TARGET
        inputs = tokens[:, :-1]
        if self.positions is not None:
            inputs, targets = inputs[:, self.positions], targets[:, self.positions]
        return Batch(tokens_BS=inputs.contiguous(), targets_BS=targets)


def _map(path: Path, items: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A file's items, read when they are used; an empty file cannot be mapped."""
    return np.memmap(path, dtype=dtype, mode="r") if items else np.empty(0, dtype=dtype)


def _source_lengths(
    manifest: Manifest, shards: Sequence[Shard], counts: Sequence[int]
) -> dict[str, int]:
    """Whole sequences per source, in the order of the shards. Sources without any are left out of
    a split that may lack them, the held-out one."""
    if not manifest.sources:
        return {"": sum(counts)}
    lengths = {source.folder: 0 for source in manifest.sources}
    for shard, count in zip(shards, counts, strict=True):
        lengths[str(Path(shard.file).parent)] += count
    return {name: length for name, length in lengths.items() if length} or {"": 0}


def open_manifest(path: Path, *, model_vocab_size: int) -> Manifest:
    """Read the manifest and compare the tokenizer with the model."""
    try:
        manifest = Manifest.read(path)
    except ValueError as error:
        raise data_error(str(error)) from error
    if manifest.tokenizer.vocab_size > model_vocab_size:
        raise data_error(
            f"the dataset's tokenizer has {manifest.tokenizer.vocab_size} tokens, but the model's "
            f"vocab_size is {model_vocab_size}; prepare the data with a tokenizer that fits, or "
            "use a model with a larger vocabulary"
        )
    return manifest


def find_shard_damage(
    folder: Path, manifest: Manifest, *, part: int = 0, parts: int = 1, checksums: bool = True
) -> str | None:
    """Check sizes of all shards and, if asked, checksums of this rank's part.

    Returns the first problem or None.
    """
    shards = [shard for split in sorted(manifest.splits) for shard in manifest.splits[split]]
    for number, shard in enumerate(shards):
        checksum = checksums and number % parts == part
        problem = find_damage(folder, shard, dtype=manifest.dtype, checksum=checksum)
        if problem:
            return problem
    return None


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How one global batch is cut: ``accumulation * micro_batch_size * ranks`` sequences."""

    global_sequences: int
    micro_batch_size: int
    """Sequences per rank and forward pass."""
    accumulation: int
    """Forward passes per optimizer step."""
    ranks: int

    @classmethod
    def make(cls, *, global_sequences: int, micro_batch_size: int, ranks: int) -> BatchPlan:
        """Use the largest micro-batch up to ``micro_batch_size`` that divides a rank's share."""
        share, rest = divmod(global_sequences, ranks)
        if rest or share == 0:
            raise ValueError(
                f"a global batch of {global_sequences} sequences cannot be split evenly over "
                f"{ranks} ranks; make global_batch_tokens a multiple of sequence_length x {ranks}"
            )
        size = next(b for b in range(min(micro_batch_size, share), 0, -1) if share % b == 0)
        return cls(
            global_sequences=global_sequences,
            micro_batch_size=size,
            accumulation=share // size,
            ranks=ranks,
        )

    def resized(self, micro_batch_size: int) -> BatchPlan:
        """The same global batch in micro-batches of another size."""
        return self.make(
            global_sequences=self.global_sequences,
            micro_batch_size=micro_batch_size,
            ranks=self.ranks,
        )

    def positions(self, *, consumed: int, rank: int) -> Iterator[NDArray[np.int64]]:
        """Positions in the endless stream of this rank's micro-batches of the next step."""
        for number in range(self.accumulation):
            start = consumed + (number * self.ranks + rank) * self.micro_batch_size
            yield np.arange(start, start + self.micro_batch_size, dtype=np.int64)


def shuffled(positions: NDArray[np.int64], *, sequences: int, seed: int) -> NDArray[np.int64]:
    """Sequence numbers at positions of the endless stream; every epoch has its own order."""
    epochs, places = np.divmod(positions, sequences)
    out = np.empty_like(places)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        out[here] = permute(places[here], sequences, key=((seed << 20) + int(epoch)) % 2**64)
    return out


class TrainingStream:
    """This rank's micro-batches of step after step, read ahead by a thread."""

    def __init__(
        self,
        reader: SequenceReader,
        plan: BatchPlan,
        *,
        rank: int,
        seed: int,
        consumed: int,
        pin: bool,
    ) -> None:
        self.wait_seconds = 0.0
        """Time spent waiting for the reading thread since the last reset."""
        self.masked = reader.masked
        """Whether some targets may not count; equal on all ranks."""
        self._reader, self._plan, self._rank, self._seed = reader, plan, rank, seed
        self._pin = pin
        self._queue: queue.Queue[list[Batch] | BaseException] = queue.Queue(PREFETCHED_STEPS)
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._fill, args=(consumed,), name="data", daemon=True
        )
        self._thread.start()

    def next_step(self) -> list[Batch]:
        """All micro-batches of the next optimizer step."""
        started = time.perf_counter()
        item = self._queue.get()
        self.wait_seconds += time.perf_counter() - started
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    def _fill(self, consumed: int) -> None:
        try:
            while self._put(self._read_step(consumed)):
                consumed += self._plan.global_sequences
        except BaseException as error:
            self._put(error)

    def _read_step(self, consumed: int) -> list[Batch]:
        batches = []
        for positions in self._plan.positions(consumed=consumed, rank=self._rank):
            batch = self._reader.batch(self._reader.at(positions, seed=self._seed))
            if self._pin:
                batch = Batch(
                    tokens_BS=batch.tokens_BS.pin_memory(),
                    targets_BS=batch.targets_BS.pin_memory(),
                )
            batches.append(batch)
        return batches

    def _put(self, item: list[Batch] | BaseException) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.2)
            except queue.Full:
                continue
            return True
        return False


def validation_batches(
    reader: SequenceReader, *, sequences: int, micro_batch_size: int, rank: int, ranks: int
) -> Iterator[Batch]:
    """This rank's part of the first held-out sequences; every rank gets as many micro-batches."""
    chosen = reader.first(sequences)
    per_round = micro_batch_size * ranks
    for start in range(0, len(chosen), per_round):
        first = start + rank * micro_batch_size
        numbers = np.full(micro_batch_size, -1, dtype=np.int64)
        here = chosen[first : first + micro_batch_size]
        numbers[: len(here)] = here
        yield reader.batch(numbers)
