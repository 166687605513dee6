"""Text files to token shards: ``python prepare_data.py --input DIR --output DIR ...``.

Every document ends with the end-of-text token. A document belongs to the training or the
validation split by the hash of its text, so equal input gives equal shards on every machine.
The manifest is written last: a folder without one is not a dataset.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from trainer import manifest as dataset

END_OF_TEXT = "<|endoftext|>"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_SAMPLE_BYTES = 4_000_000
"""Text a new tokenizer is trained on: enough for small vocabularies, seconds on one core."""
DOCUMENTS_PER_TASK = 64
SPLITS = (dataset.SPLIT_TRAIN, dataset.SPLIT_VALIDATION)
EXIT_BAD_INPUT = 2

Item = TypeVar("Item")


class InputError(Exception):
    """A mistake in what was asked for; its message is the whole output."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="prepare_data.py", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--input", nargs="+", type=Path, required=True, help="folders or text files")
    add("--include", default="*", help="file name pattern inside folders, for example '*.py'")
    add("--output", type=Path, required=True, help="new or empty folder for the shards")
    add("--tokenizer", type=Path, help="tokenizer.json to use")
    add("--train-tokenizer", action="store_true", help="train a byte-level BPE on the input")
    add("--vocab-size", type=int, default=4096, help="size of the trained tokenizer")
    add("--validation-fraction", type=float, default=0.02, help="share of documents held out")
    add("--shard-tokens", type=int, default=100_000_000, help="tokens per shard file")
    add("--workers", type=int, default=1, help="tokenising processes")
    add("--max-tokens", type=int, help="stop after this many tokens, all splits together")
    return parser.parse_args(arguments)


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot work before anything is read."""
    if options.train_tokenizer == (options.tokenizer is not None):
        raise InputError("give either --tokenizer FILE or --train-tokenizer")
    if not 0 <= options.validation_fraction < 1:
        raise InputError(
            f"--validation-fraction is {options.validation_fraction}; allowed are 0 to below 1"
        )
    if options.train_tokenizer and not 257 <= options.vocab_size <= 2**20:
        raise InputError(
            f"--vocab-size is {options.vocab_size}; allowed are 257 (all bytes and end-of-text) "
            "to 1048576"
        )
    for name in ("shard_tokens", "workers", "max_tokens"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} is {value}; 1 or more is needed")
    if options.output.exists() and not options.output.is_dir():
        raise InputError(f"--output {options.output} is a file; give a new or empty folder")
    if options.output.is_dir() and any(options.output.iterdir()):
        raise InputError(f"--output {options.output} is not empty; give a new or empty folder")


def find_documents(inputs: Iterable[Path], include: str) -> list[Path]:
    """All matching files, without hidden folders, in a fixed order."""
    found: dict[Path, None] = {}
    for path in inputs:
        if path.is_file():
            found[path] = None
        elif path.is_dir():
            for file in sorted(path.rglob(include)):
                hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
                if file.is_file() and not hidden:
                    found[file] = None
        else:
            raise InputError(f"--input {path} does not exist")
    if not found:
        raise InputError(
            f"no file matches --include {include!r} below {', '.join(map(str, inputs))}"
        )
    return list(found)


def read_document(path: Path) -> str | None:
    """The text of a file; None when it is empty or not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return text or None


def train_tokenizer(paths: Sequence[Path], vocab_size: int) -> Tokenizer:
    """A byte-level BPE, trained on an evenly spread sample of the documents."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    total = sum(path.stat().st_size for path in paths)
    stride = max(1, round(total / TOKENIZER_SAMPLE_BYTES))
    sample = (text for path in paths[::stride] if (text := read_document(path)))
    tokenizer.train_from_iterator(sample, trainer=trainer)
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """An existing ``tokenizer.json`` that knows the end-of-text token."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception for everything
        raise InputError(f"--tokenizer {path} cannot be read: {error}") from error
    end_of_text_id(tokenizer)
    return tokenizer


def end_of_text_id(tokenizer: Tokenizer) -> int:
    """Id of the token between documents."""
    found = tokenizer.token_to_id(END_OF_TEXT)
    if found is None:
        raise InputError(f"the tokenizer lacks the token {END_OF_TEXT}, which ends documents")
    return found


def split_of(text: str, validation_fraction: float) -> str:
    """Train or validation, by the hash of the text: equal documents never land in both."""
    place = int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big") / 2**64
    return dataset.SPLIT_VALIDATION if place < validation_fraction else dataset.SPLIT_TRAIN


@dataclass(kw_only=True)
class ShardWriter:
    """Writes one split as a row of files, with their checksums."""

    folder: Path
    split: str
    dtype: dataset.Dtype
    shard_tokens: int
    shards: list[dataset.Shard] = field(default_factory=list)
    _sink: IO[bytes] | None = None
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)
    _tokens: int = 0

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._finish()

    def write(self, tokens: Sequence[int]) -> None:
        """Append one document."""
        rest = np.asarray(tokens, dtype=np.dtype(self.dtype).newbyteorder("<"))
        while len(rest):
            if self._sink is None:
                self._sink = (self.folder / self._name).open("wb")
                self._hash, self._tokens = hashlib.sha256(), 0
            piece, rest = np.split(rest, [self.shard_tokens - self._tokens])
            data = piece.tobytes()
            self._sink.write(data)
            self._hash.update(data)
            self._tokens += len(piece)
            if self._tokens == self.shard_tokens:
                self._finish()

    @property
    def _name(self) -> str:
        return f"{self.split}-{len(self.shards):05d}.bin"

    def _finish(self) -> None:
        if self._sink is None:
            return
        with self._sink as sink:
            self._sink = None
            sink.flush()
            os.fsync(sink.fileno())
        self.shards.append(
            dataset.Shard(file=self._name, tokens=self._tokens, sha256=self._hash.hexdigest())
        )


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """One task's documents as (split, tokens with end-of-text)."""

    documents: list[tuple[str, list[int]]]
    skipped: int
    """Empty or not UTF-8."""


_worker: tuple[Tokenizer, int, float]


def start_worker(tokenizer_json: str, validation_fraction: float) -> None:
    """Give a tokenising process its tokenizer."""
    global _worker
    tokenizer = Tokenizer.from_str(tokenizer_json)
    _worker = (tokenizer, end_of_text_id(tokenizer), validation_fraction)


def encode(paths: list[Path]) -> Encoded:
    """Tokenise some documents."""
    tokenizer, end_of_text, validation_fraction = _worker
    texts = [text for path in paths if (text := read_document(path))]
    return Encoded(
        documents=[
            (split_of(text, validation_fraction), [*encoding.ids, end_of_text])
            for text, encoding in zip(
                texts, tokenizer.encode_batch_fast(texts, add_special_tokens=False), strict=True
            )
        ],
        skipped=len(paths) - len(texts),
    )


def encode_all(
    paths: list[Path], *, tokenizer: Tokenizer, validation_fraction: float, workers: int
) -> Iterator[Encoded]:
    """Tokenise everything, in the order of the paths whatever the number of processes."""
    tasks = [paths[i : i + DOCUMENTS_PER_TASK] for i in range(0, len(paths), DOCUMENTS_PER_TASK)]
    if workers == 1:
        start_worker(tokenizer.to_str(), validation_fraction)
        yield from map(encode, tasks)
        return
    # Several processes share the cores already.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    arguments = (tokenizer.to_str(), validation_fraction)
    with get_context("spawn").Pool(workers, start_worker, arguments) as pool:
        yield from pool.imap(encode, tasks)


def prepare(options: argparse.Namespace, console: Console) -> dataset.Manifest:
    """Do the whole work; returns the manifest that was written."""
    check(options)
    paths = find_documents(options.input, options.include)
    if options.train_tokenizer:
        console.print(f"training a tokenizer of {options.vocab_size} tokens", highlight=False)
        tokenizer = train_tokenizer(paths, options.vocab_size)
    else:
        tokenizer = load_tokenizer(options.tokenizer)
    options.output.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.output / TOKENIZER_FILE))
    dtype: dataset.Dtype = "uint16" if tokenizer.get_vocab_size() <= 2**16 else "uint32"
    train, held_out = (
        ShardWriter(
            folder=options.output, split=split, dtype=dtype, shard_tokens=options.shard_tokens
        )
        for split in SPLITS
    )
    encoded = encode_all(
        paths,
        tokenizer=tokenizer,
        validation_fraction=options.validation_fraction,
        workers=options.workers,
    )
    with train, held_out:
        skipped = write_documents(
            track(encoded, files=len(paths), console=console),
            {train.split: train, held_out.split: held_out},
            maximum=options.max_tokens,
        )
    if not train.shards:
        raise InputError(f"none of the {len(paths)} files holds UTF-8 text to train on")
    result = dataset.Manifest(
        dtype=dtype,
        tokenizer=dataset.Tokenizer(
            file=TOKENIZER_FILE,
            vocab_size=tokenizer.get_vocab_size(),
            end_of_text_id=end_of_text_id(tokenizer),
            sha256=dataset.file_sha256(options.output / TOKENIZER_FILE),
        ),
        splits={train.split: tuple(train.shards), held_out.split: tuple(held_out.shards)},
    )
    result.write(options.output)
    counts = ", ".join(f"{result.tokens(split):,} {split}" for split in SPLITS)
    left_out = f"; {skipped} files left out (empty or not UTF-8)" if skipped else ""
    console.print(f"{counts} tokens in {options.output}{left_out}", highlight=False)
    return result


def write_documents(
    encoded: Iterable[Encoded], writers: dict[str, ShardWriter], *, maximum: int | None
) -> int:
    """Write until the input or ``maximum`` tokens are used up; returns how many were skipped."""
    skipped = written = 0
    for task in encoded:
        skipped += task.skipped
        for split, tokens in task.documents:
            room = len(tokens) if maximum is None else maximum - written
            writers[split].write(tokens[:room])
            written += min(len(tokens), room)
            if written == maximum:
                return skipped
    return skipped


def track(encoded: Iterable[Encoded], *, files: int, console: Console) -> Iterator[Encoded]:
    """Show a progress bar on a terminal, nothing elsewhere."""
    columns = (TextColumn("tokenising"), BarColumn(), TextColumn("{task.fields[tokens]:,} tokens"))
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        row = bar.add_task("tokenising", total=files, tokens=0)
        tokens = 0
        for task in encoded:
            tokens += sum(len(ids) for _, ids in task.documents)
            bar.update(row, advance=len(task.documents) + task.skipped, tokens=tokens)
            yield task


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when the dataset is complete, 2 for a mistake in the request."""
    options = parse(arguments)
    try:
        prepare(options, Console(stderr=True))
    except InputError as error:
        print(f"prepare_data.py: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        print(f"prepare_data.py: {options.output}: {error.strerror}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("prepare_data.py: interrupted; no manifest was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
