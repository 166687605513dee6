"""Documents to token shards: ``python prepare_data.py --input DIR --output DIR ...``.

Reads text files, JSON lines and Parquet. Every document ends with the end-of-text token. A document
belongs to the training or the validation split by the hash of its text, so equal input gives equal
shards on every machine, with any number of processes. ``--chat`` makes fine-tuning data of lists of
messages; ``--mix`` joins prepared datasets with weights.

The manifest is written last: a folder without one is not a dataset. After an interruption the same
command goes on where it was.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cdk_blackwell.planning.contracts import DATASET_MANIFEST_FILE
from preparation.chat import ChatTemplate, load_chat_template
from preparation.documents import FORMATS, Unit, find_files, find_units, make_tasks
from preparation.encoding import Encoded, Encoder, encode_all
from preparation.errors import InputError
from preparation.journal import JOURNAL_FILE, Journal, Position
from preparation.mixture import describe_mixture, write_mixture
from preparation.shards import SplitWriter
from preparation.vocabulary import Vocabulary, load_vocabulary, train_vocabulary
from trainer.manifest import (
    SPLIT_TRAIN,
    SPLIT_VALIDATION,
    Dtype,
    Manifest,
    Tokenizer,
    write_whole,
)
from trainer.tokenizer import TEMPLATE_FILE, TOKENIZER_CONFIG_FILE

TOKENIZER_FILE: Final = "tokenizer.json"
SPLITS: Final = (SPLIT_TRAIN, SPLIT_VALIDATION)
EXIT_BAD_INPUT: Final = 2
EXIT_INTERRUPTED: Final = 130
JOURNAL_SECONDS: Final = 10.0
"""At most so much work is done again after an interruption."""
LINE_SECONDS: Final = 30.0
"""Between lines of progress where there is no terminal."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="prepare_data.py", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--input", nargs="+", type=Path, help="folders or files")
    add("--include", default="*", help="file name pattern inside folders, for example '*.py'")
    add("--output", type=Path, required=True, help="new or empty folder, or an interrupted one")
    add("--format", choices=FORMATS, help="of all input; otherwise by each file's suffix")
    add("--field", help="of JSON lines and Parquet: default 'text', with --chat 'messages'")
    add("--tokenizer", type=Path, help="tokenizer.json to use")
    add("--end-of-text", help="the tokenizer's token that ends documents, if it is none usual")
    add("--add-special-tokens", action="store_true", help="also those the tokenizer adds itself")
    add("--train-tokenizer", action="store_true", help="train a byte-level BPE on the input")
    add("--vocab-size", type=int, default=4096, help="size of the trained tokenizer")
    add("--chat", action="store_true", help="documents are lists of messages: fine-tuning data")
    add("--chat-template", type=Path, help="Jinja file; otherwise the one beside the tokenizer")
    add("--validation-fraction", type=float, default=0.02, help="share of documents held out")
    add("--shard-tokens", type=int, default=100_000_000, help="tokens per shard file")
    add("--workers", type=int, default=1, help="tokenising processes")
    add("--max-tokens", type=int, help="stop after this many tokens, all splits together")
    add("--mix", nargs="+", metavar="NAME=WEIGHT", help="join the datasets OUTPUT/NAME")
    return parser.parse_args(arguments)


def check(options: argparse.Namespace) -> None:
    """Refuse what cannot work before anything is read."""
    if not options.input:
        raise InputError("--input is needed: folders or files to read")
    if options.train_tokenizer == (options.tokenizer is not None):
        raise InputError("give either --tokenizer FILE or --train-tokenizer")
    if options.chat and options.train_tokenizer:
        raise InputError("--chat needs the --tokenizer of the model that is to be fine-tuned")
    if options.chat_template and not options.chat:
        raise InputError("--chat-template is only used with --chat")
    if options.chat and options.add_special_tokens:
        raise InputError("--add-special-tokens does not go with --chat: the template adds them")
    if options.end_of_text and options.train_tokenizer:
        raise InputError("--end-of-text names a token of --tokenizer; a trained one has its own")
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
    check_output(options.output)


def check_output(output: Path) -> None:
    """Only a folder that is new, empty or our own unfinished one is written to."""
    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file; give a new or empty folder")
    if output.is_dir() and any(output.iterdir()) and not (output / JOURNAL_FILE).is_file():
        raise InputError(f"--output {output} is not empty; give a new or empty folder")


def prepare(options: argparse.Namespace, console: Console) -> Manifest:
    """Do the whole work; returns the manifest that was written."""
    check(options)
    field = options.field or ("messages" if options.chat else "text")
    units = find_units(find_files(options.input, options.include), options.format)
    chat = load_chat_template(options.tokenizer, options.chat_template) if options.chat else None
    vocabulary = make_vocabulary(options, units, field, console)
    dtype: Dtype = "uint16" if vocabulary.size <= 2**16 else "uint32"
    encoder = Encoder(
        vocabulary=vocabulary,
        field=field,
        validation_fraction=options.validation_fraction,
        add_special_tokens=options.add_special_tokens,
        chat=chat,
    )
    output = options.output
    output.mkdir(parents=True, exist_ok=True)
    journal = Journal(output, request=request_digest(options, encoder, units), dtype=dtype)
    with ExitStack() as cleanup:
        cleanup.callback(journal.close)
        announce_resume(journal, console)
        # Of an end that was cut off: its shards may be made again, so it is none until they are.
        (output / DATASET_MANIFEST_FILE).unlink(missing_ok=True)
        writers = {
            split: SplitWriter(
                folder=output,
                split=split,
                dtype=dtype,
                shard_tokens=options.shard_tokens,
                masked=chat is not None,
                shards=list(journal.position.finished.get(split, ())),
                unfinished=journal.position.unfinished.get(split),
            )
            for split in SPLITS
        }
        for writer in writers.values():
            cleanup.callback(writer.close)
        end = write_all(
            units,
            encoder,
            writers,
            journal,
            workers=options.workers,
            maximum=options.max_tokens,
            console=console,
        )
        result = finish(output, vocabulary, dtype, writers, chat=chat)
        journal.remove()
    counts = ", ".join(f"{result.tokens(split):,} {split}" for split in SPLITS)
    left_out = f"; {end.skipped} documents left out (empty or not UTF-8)" if end.skipped else ""
    console.print(f"{counts} tokens in {output}{left_out}", highlight=False)
    return result


def make_vocabulary(
    options: argparse.Namespace, units: Sequence[Unit], field: str, console: Console
) -> Vocabulary:
    """The tokenizer given, or a new one."""
    if not options.train_tokenizer:
        return load_vocabulary(options.tokenizer, end_of_text=options.end_of_text)
    console.print(f"training a tokenizer of {options.vocab_size} tokens", highlight=False)
    vocabulary = train_vocabulary(units, field=field, size=options.vocab_size)
    if vocabulary.size < options.vocab_size:
        console.print(f"the text is enough for {vocabulary.size} tokens only", highlight=False)
    return vocabulary


def request_digest(options: argparse.Namespace, encoder: Encoder, units: Sequence[Unit]) -> str:
    """Of all that decides what the shards hold: input, tokenizer and options, but not workers."""
    files = sorted({unit.path for unit in units})
    request: dict[str, Any] = {
        "files": [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files],
        "units": hashlib.sha256(repr(units).encode()).hexdigest(),
        "vocabulary": asdict(encoder.vocabulary),
        "tokenizers": version("tokenizers"),
        "chat": [encoder.chat.source, encoder.chat.special_tokens] if encoder.chat else None,
        "field": encoder.field,
        "add_special_tokens": encoder.add_special_tokens,
        "validation_fraction": encoder.validation_fraction,
        "shard_tokens": options.shard_tokens,
        "max_tokens": options.max_tokens,
    }
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


def announce_resume(journal: Journal, console: Console) -> None:
    """Say what is kept of an interrupted preparation."""
    if journal.position.tasks:
        kept = f"{journal.position.tokens:,} tokens of the interrupted preparation are kept"
        lost = "; damaged shards are made again" if journal.lost else ""
        console.print(f"{kept}{lost}", highlight=False)


def write_all(
    units: Sequence[Unit],
    encoder: Encoder,
    writers: dict[str, SplitWriter],
    journal: Journal,
    *,
    workers: int,
    maximum: int | None,
    console: Console,
) -> Position:
    """Tokenise from the journal's position on, until the input or ``maximum`` is used up."""
    at = journal.position
    if at.tokens == maximum:
        return at
    encoded = encode_all(make_tasks(units)[at.tasks :], encoder, workers=workers)
    size = sum(unit.size for unit in units)
    noted = time.monotonic()
    try:
        for task in track(encoded, at, size=size, console=console):
            tokens = at.tokens
            for document in task.documents:
                room = len(document.tokens) if maximum is None else maximum - tokens
                mask = None if document.mask is None else document.mask[:room]
                writers[document.split].write(document.tokens[:room], mask)
                tokens += min(len(document.tokens), room)
            at = Position(
                tasks=at.tasks + 1,
                tokens=tokens,
                skipped=at.skipped + task.skipped,
                size=at.size + task.size,
            )
            if tokens == maximum:
                break
            if time.monotonic() - noted >= JOURNAL_SECONDS:
                note(at, writers, journal)
                noted = time.monotonic()
    finally:
        encoded.close()
    return at


def note(at: Position, writers: dict[str, SplitWriter], journal: Journal) -> None:
    """Bring everything to the disk, then write down how far it is."""
    for writer in writers.values():
        writer.secure()
    journal.record(
        Position(
            **{
                **vars(at),
                "finished": {split: tuple(writer.shards) for split, writer in writers.items()},
                "unfinished": {split: writer.unfinished for split, writer in writers.items()},
            }
        )
    )


def finish(
    output: Path,
    vocabulary: Vocabulary,
    dtype: Dtype,
    writers: dict[str, SplitWriter],
    *,
    chat: ChatTemplate | None,
) -> Manifest:
    """End the shards, then write the tokenizer and, last, the manifest."""
    for writer in writers.values():
        writer.finish()
    if not writers[SPLIT_TRAIN].shards:
        what = "conversation with an answer of the assistant" if chat else "text"
        raise InputError(
            f"the input holds no {what} to train on"
            + ("; lower --validation-fraction" if writers[SPLIT_VALIDATION].shards else "")
        )
    write_whole(output / TOKENIZER_FILE, vocabulary.text)
    if chat:
        # For the export: answers end in the chat's own token, and are asked for by its template.
        write_whole(output / TEMPLATE_FILE, chat.source)
        special = json.dumps(chat.special_tokens, indent=2, ensure_ascii=False) + "\n"
        write_whole(output / TOKENIZER_CONFIG_FILE, special)
    result = Manifest(
        dtype=dtype,
        tokenizer=Tokenizer(
            file=TOKENIZER_FILE,
            vocab_size=vocabulary.size,
            end_of_text_id=vocabulary.end_of_text_id,
            sha256=hashlib.sha256(vocabulary.text.encode("utf-8")).hexdigest(),
        ),
        splits={split: tuple(writer.shards) for split, writer in writers.items()},
    )
    result.write(output)
    return result


def track(
    encoded: Iterable[Encoded], start: Position, *, size: int, console: Console
) -> Iterator[Encoded]:
    """Show a progress bar on a terminal, a line now and then elsewhere."""
    columns = (TextColumn("tokenising"), BarColumn(), TextColumn("{task.fields[tokens]:,} tokens"))
    tokens, done, said = start.tokens, start.size, time.monotonic()
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        row = bar.add_task("tokenising", total=size, completed=done, tokens=tokens)
        for task in encoded:
            tokens += sum(len(document.tokens) for document in task.documents)
            done += task.size
            bar.update(row, completed=done, tokens=tokens)
            if not console.is_terminal and time.monotonic() - said >= LINE_SECONDS:
                said = time.monotonic()
                console.print(f"{done / max(size, 1):.0%}, {tokens:,} tokens", highlight=False)
            yield task


def mix(options: argparse.Namespace, console: Console) -> None:
    """Write the manifest of a mixture."""
    if options.input or options.tokenizer or options.train_tokenizer:
        raise InputError("--mix joins datasets that are prepared: give it --output and no input")
    manifest = write_mixture(options.output, options.mix)
    console.print(
        f"{describe_mixture(manifest)}: {options.output / DATASET_MANIFEST_FILE}", highlight=False
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when the dataset is complete, 2 for a mistake in the request."""
    options = parse(arguments)
    console = Console(stderr=True)
    try:
        mix(options, console) if options.mix else prepare(options, console)
    except InputError as error:
        print(f"prepare_data.py: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        print(
            f"prepare_data.py: {options.output}: {error.strerror}; no manifest was written, and "
            "the same command goes on from here",
            file=sys.stderr,
        )
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print(
            "prepare_data.py: interrupted; no manifest was written, and the same command goes on "
            "from here",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
