"""Documents to token ids, in as many processes as wanted, always in the order of the input."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from typing import Any, Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from preparation.chat import ChatTemplate
from preparation.documents import Unit, read_documents
from preparation.errors import InputError
from preparation.vocabulary import Vocabulary
from trainer.manifest import SPLIT_TRAIN, SPLIT_VALIDATION

PIECE_CHARACTERS: Final = 4 << 20
"""Encoded at once: about a gigabyte of the tokenizer's memory."""
TASKS_AHEAD: Final = 4
"""Per process: enough that none waits, few enough that results do not fill memory."""


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """How documents become tokens; travels to every process."""

    vocabulary: Vocabulary
    field: str
    validation_fraction: float
    add_special_tokens: bool
    chat: ChatTemplate | None


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document's tokens."""

    split: str
    tokens: NDArray[np.uint32]
    """With the end-of-text token, unless it is a conversation, whose template ends it."""
    mask: NDArray[np.uint8] | None
    """For conversations: 1 where the token counts in the loss."""


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """One task's documents, in order."""

    documents: list[Document]
    skipped: int
    """Empty, or not text."""
    size: int
    """Bytes of input."""


_encode: _Worker


def start_worker(encoder: Encoder) -> None:
    """Give a tokenising process its tokenizer; an interrupt is the parent's to handle."""
    global _encode
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _encode = _Worker(encoder)


def _end_with_parent() -> None:
    """A parent that is killed tells nobody, and its workers would wait for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def encode(task: Sequence[Unit]) -> Encoded:
    """Tokenise a task in a process that has been started."""
    return _encode(task)


class _Worker:
    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._tokenizer = encoder.vocabulary.tokenizer()
        # A document that merely quotes a special token must not end there. In a conversation the
        # template's own special tokens are meant.
        self._tokenizer.encode_special_tokens = encoder.chat is None

    def __call__(self, task: Sequence[Unit]) -> Encoded:
        found = [document for unit in task for document in self._read(unit)]
        documents = self._conversations(found) if self._encoder.chat else self._texts(found)
        return Encoded(
            documents=documents,
            skipped=len(found) - len(documents),
            size=sum(unit.size for unit in task),
        )

    def _read(self, unit: Unit) -> Iterator[Any]:
        """A unit's documents; InputError shows one that is no text, where texts are asked for."""
        for document in read_documents(unit, self._encoder.field):
            if not (self._encoder.chat or document is None or isinstance(document, str)):
                raise InputError(
                    f"{unit.path}: field {self._encoder.field!r} holds "
                    f"{type(document).__name__} {str(document)[:40]!r}, not text; --field must "
                    "name the text, or give --chat for lists of messages"
                )
            yield document

    def _texts(self, found: list[str | None]) -> list[Document]:
        texts = [document for document in found if is_text(document)]
        pieces = [cut(text) for text in texts]
        batches = batched(chain.from_iterable(pieces))
        ids = chain.from_iterable(self._ids(batch) for batch in batches)
        end = np.array([self._encoder.vocabulary.end_of_text_id], dtype=np.uint32)
        return [
            Document(
                split=split_of(text, self._encoder.validation_fraction),
                tokens=np.concatenate([*islice(ids, len(parts)), end]),
                mask=None,
            )
            for text, parts in zip(texts, pieces, strict=True)
        ]

    def _ids(self, texts: list[str]) -> list[NDArray[np.uint32]]:
        with _refusal():
            encodings = self._tokenizer.encode_batch_fast(
                texts, add_special_tokens=self._encoder.add_special_tokens
            )
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]

    def _conversations(self, found: list[Any]) -> list[Document]:
        assert self._encoder.chat is not None
        documents = []
        for messages in found:
            if not messages:
                continue
            rendered = self._encoder.chat.render(messages)
            if not is_text(rendered.text):
                continue
            with _refusal():
                encoding = self._tokenizer.encode(rendered.text, add_special_tokens=False)
            mask = np.array([rendered.counts(*o) for o in encoding.offsets], dtype=np.uint8)
            if not mask.any():
                continue
            key = json.dumps(messages, sort_keys=True, default=str)
            documents.append(
                Document(
                    split=split_of(key, self._encoder.validation_fraction),
                    tokens=np.array(encoding.ids, dtype=np.uint32),
                    mask=mask,
                )
            )
        return documents


@contextmanager
def _refusal() -> Iterator[None]:
    """What the tokenizer raises becomes one line for the person who gave it."""
    try:
        yield
    except Exception as error:  # tokenizers raises bare Exception for everything
        raise InputError(
            f"the tokenizer cannot encode a document: {error}; give a --tokenizer that knows every "
            "text, such as a byte-level one, or one whose unknown token is in its vocabulary"
        ) from error


def is_text(document: str | None) -> TypeGuard[str]:
    """Whether it is a text that is not empty and has an encoding."""
    if not document:
        return False
    try:
        document.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def cut(text: str) -> list[str]:
    """A text whole, or one of very many characters in pieces that end in a line's end.

    While it encodes, the tokenizer needs hundreds of bytes a token.
    """
    pieces, start = [], 0
    while len(text) - start > PIECE_CHARACTERS:
        end = text.rfind("\n", start, start + PIECE_CHARACTERS) + 1 or start + PIECE_CHARACTERS
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]


def batched(pieces: Iterable[str]) -> Iterator[list[str]]:
    """Together no more than one piece may have."""
    batch: list[str] = []
    room = PIECE_CHARACTERS
    for piece in pieces:
        if len(piece) > room:
            yield batch
            batch, room = [], PIECE_CHARACTERS
        batch.append(piece)
        room -= len(piece)
    if batch:
        yield batch


def split_of(text: str, validation_fraction: float) -> str:
    """Train or validation, by the hash of the text: equal documents never land in both."""
    place = int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big") / 2**64
    return SPLIT_VALIDATION if place < validation_fraction else SPLIT_TRAIN


def encode_all(
    tasks: Sequence[Sequence[Unit]], encoder: Encoder, *, workers: int
) -> Generator[Encoded, None, None]:
    """Tokenise all tasks, in their order whatever the number of processes."""
    if workers == 1:
        yield from map(_Worker(encoder), tasks)
        return
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=start_worker, initargs=(encoder,)
    )
    try:
        waiting: deque[Future[Encoded]] = deque()
        for task in tasks:
            waiting.append(pool.submit(encode, task))
            if len(waiting) == workers * TASKS_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise InputError(
            "a tokenising process ended suddenly, most likely for lack of memory: run the same "
            "command again with fewer --workers, it goes on from here"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
