"""Conversations through a tokenizer's chat template, and which of their tokens count in the loss.

Templates are Jinja programs from files of others, so they run in Jinja's immutable sandbox, with
the same settings, helpers and values that ``transformers`` gives them, except ``strftime_now``: the
day of preparation would change the shards, and templates that ask for it have a date of their own.
What the assistant says is what the template puts between ``{% generation %}`` and
``{% endgeneration %}``. Without these it is found by rendering every prefix of the conversation:
a turn is what the next prefix adds after the generation prompt, without space at its end.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn

from preparation.errors import InputError
from preparation.vocabulary import read_tokenizer_config, token_text
from trainer.tokenizer import TEMPLATE_FILE

ASSISTANT = "assistant"
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of what an answer was reasoned from; templates read the first, one family the second."""
SPECIAL_TOKENS = tuple(
    f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
)
_HAS_MARKS: Final = re.compile(r"{%[-+]?\s*generation\s*[-+]?%}")
_BEGIN: Final = "\ufdd0answer\ufdd1"
_END: Final = "\ufdd1answer\ufdd0"
"""What the marks become while rendering; these two code points never stand for characters."""
_MARKS: Final = re.compile(f"({_BEGIN}|{_END})")


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A conversation as text."""

    text: str
    spans: tuple[tuple[int, int], ...]
    """Characters that the assistant said, from and to, with the mark that ends its turn."""

    def counts(self, start: int, end: int) -> bool:
        """Whether a token of these characters holds any that the assistant said.

        A token may begin before them, with the space that the prompt ends in.
        """
        return end > start and any(start < last and end > first for first, last in self.spans)


@dataclass(frozen=True)
class ChatTemplate:
    """A template and the special tokens it may write."""

    source: str
    special_tokens: dict[str, str] = field(default_factory=dict)

    def render(self, messages: Any) -> Rendered:
        """The whole conversation; InputError when it is none, or its turns cannot be told apart."""
        check_messages(messages)
        turns = [plain_message(message) for message in messages]
        whole = self._text(turns, prompt=False)
        return _read_marks(whole) if self.has_marks else self._compare_prefixes(turns, whole)

    @property
    def has_marks(self) -> bool:
        """Whether the template itself says what an answer is."""
        return bool(_HAS_MARKS.search(self.source))

    def _compare_prefixes(self, turns: list[dict[str, Any]], whole: str) -> Rendered:
        spans = []
        for number, turn in enumerate(turns):
            if turn["role"] != ASSISTANT:
                continue
            before = self._text(turns[:number], prompt=True)
            after = self._text(turns[: number + 1], prompt=False)
            if not (after.startswith(before) and whole.startswith(after)):
                raise InputError(
                    f"the chat template writes turn {number + 1} of a conversation differently "
                    "when others follow, so the assistant's tokens cannot be told apart; split "
                    "conversations after each answer, or give another --chat-template, which may "
                    "mark answers by {% generation %}"
                )
            spans.append((len(before), len(before) + len(after[len(before) :].rstrip())))
        return Rendered(text=whole, spans=tuple(spans))

    def _text(self, turns: list[dict[str, Any]], *, prompt: bool) -> str:
        values = {"tools": None, "documents": None, **self.special_tokens}
        try:
            text: str = self._program.render(messages=turns, add_generation_prompt=prompt, **values)
        except Exception as error:  # a template is a program of somebody's, and may raise anything
            reason = str(error) or type(error).__name__
            raise InputError(f"the chat template refuses a conversation: {reason}") from error
        return text

    @cached_property
    def _program(self) -> Any:
        import jinja2
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _generation_tag()]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        try:
            return environment.from_string(self.source)
        except jinja2.TemplateError as error:
            raise InputError(f"the chat template is not valid: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Without the compiled program, which cannot travel between processes."""
        return {"source": self.source, "special_tokens": self.special_tokens}


def check_messages(messages: Any) -> None:
    """InputError unless it is a list of objects with a role each."""
    good = isinstance(messages, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages
    )
    if not good:
        raise InputError(
            'a conversation must be a list like [{"role": "user", "content": "..."}, ...], got '
            f"{str(messages)[:80]}"
        )


def plain_message(message: dict[str, Any]) -> dict[str, Any]:
    """Without empty fields, which rows of a table have, and with reasoning by its usual name."""
    out = {key: value for key, value in message.items() if value is not None}
    reasoning = next((out[name] for name in REASONING if name in out), None)
    if reasoning is None:
        return out
    return {REASONING[1]: reasoning, **out, REASONING[0]: reasoning}


def _read_marks(marked: str) -> Rendered:
    """Take the marks out of a text, and say where they were."""
    text, spans, begun = "", [], 0
    for piece in _MARKS.split(marked):
        if piece == _BEGIN:
            begun = len(text)
        elif piece == _END:
            spans.append((begun, len(text)))
        else:
            text += piece
    return Rendered(text=text, spans=tuple(spans))


def load_chat_template(tokenizer: Path, given: Path | None) -> ChatTemplate:
    """The template given, else the one beside the tokenizer as ``transformers`` stores it."""
    try:
        import jinja2  # noqa: F401 - only asked whether it is there
    except ImportError as error:
        raise InputError(
            "--chat needs the package jinja2, which is not installed: "
            "pip install 'cdk-blackwell[train]'"
        ) from error
    config = read_tokenizer_config(tokenizer)
    path = given or tokenizer.with_name(TEMPLATE_FILE)
    try:
        source: object = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if given:
            raise InputError(f"--chat-template {given} cannot be read: {error}") from error
        source = _default_template(config.get("chat_template"))
    if not isinstance(source, str):
        raise InputError(
            f"no chat template beside {tokenizer}: neither {TEMPLATE_FILE} nor chat_template in "
            "tokenizer_config.json; give --chat-template FILE"
        )
    tokens = {
        name: text for name in SPECIAL_TOKENS if (text := token_text(config.get(name))) is not None
    }
    template = ChatTemplate(source, tokens)
    template._program  # noqa: B018 - an invalid template is refused before any work
    return template


def _default_template(value: object) -> object:
    """Older files hold several templates by name."""
    if isinstance(value, list):
        return next((one.get("template") for one in value if one.get("name") == "default"), None)
    return value


def _refuse(message: str) -> NoReturn:
    import jinja2

    raise jinja2.TemplateError(message)


def _to_json(value: Any, **options: Any) -> str:
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _generation_tag() -> type[Any]:
    """``{% generation %}`` around what the assistant says: its content between two marks."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 - as Jinja asks for it

        def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            begin, end = (
                nodes.Output([nodes.TemplateData(mark)]).set_lineno(line) for mark in (_BEGIN, _END)
            )
            return [begin, *body, end]

    return Generation
