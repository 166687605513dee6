"""Conversations through a tokenizer's chat template, and which of their tokens count in the loss.

Templates are Jinja programs from files of others, so they run in Jinja's immutable sandbox, with
the same settings and helpers that ``transformers`` gives them, except ``strftime_now``: the day of
preparation would change the shards, and templates that ask for it have a date of their own.
What the assistant says is found by rendering every prefix of the conversation: its turn is what the
next prefix adds after the generation prompt. This needs no marks inside the template.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from preparation.errors import InputError
from preparation.vocabulary import read_tokenizer_config, token_text

ASSISTANT = "assistant"
TEMPLATE_FILE = "chat_template.jinja"


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A conversation as text."""

    text: str
    spans: tuple[tuple[int, int], ...]
    """Characters that the assistant said, from and to, with the mark that ends its turn."""

    def counts(self, start: int, end: int) -> bool:
        """Whether a token of these characters begins in what the assistant said."""
        return end > start and any(first <= start < last for first, last in self.spans)


@dataclass(frozen=True)
class ChatTemplate:
    """A template and the special tokens it may write."""

    source: str
    special_tokens: dict[str, str] = field(default_factory=dict)

    def render(self, messages: Any) -> Rendered:
        """The whole conversation; InputError when it is none, or its turns cannot be told apart."""
        check_messages(messages)
        whole = self._text(messages, prompt=False)
        spans = []
        for number, message in enumerate(messages):
            if message["role"] != ASSISTANT:
                continue
            before = self._text(messages[:number], prompt=True)
            after = self._text(messages[: number + 1], prompt=False)
            if not (after.startswith(before) and whole.startswith(after)):
                raise InputError(
                    f"the chat template writes turn {number + 1} of a conversation differently "
                    "when others follow, so the assistant's tokens cannot be told apart; split "
                    "conversations after each answer, or give another --chat-template"
                )
            spans.append((len(before), len(before) + len(after[len(before) :].rstrip())))
        return Rendered(text=whole, spans=tuple(spans))

    def _text(self, messages: Any, *, prompt: bool) -> str:
        import jinja2

        try:
            text: str = self._program.render(
                messages=messages, add_generation_prompt=prompt, **self.special_tokens
            )
        except (jinja2.TemplateError, TypeError, AttributeError) as error:
            raise InputError(f"the chat template refuses a conversation: {error}") from error
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


def load_chat_template(tokenizer: Path, given: Path | None) -> ChatTemplate:
    """The template given, else the one beside the tokenizer as ``transformers`` stores it."""
    try:
        import jinja2  # noqa: F401 - only asked whether it is there
    except ImportError as error:
        raise InputError(
            "--chat needs the package jinja2, which is not installed: pip install jinja2"
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
        name: text
        for name in ("bos_token", "eos_token", "unk_token", "pad_token")
        if (text := token_text(config.get(name))) is not None
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
    """``{% generation %}`` around what the assistant says: its content as it is."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012 - as Jinja asks for it

        def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation
