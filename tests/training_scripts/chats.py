"""A tokenizer with chat tokens, chat templates and conversations, small enough for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGED = [("Ġ", "F"), ("I", "t")]
"""A space and a letter, so that a token can begin before the answer does."""
VOCABULARY = len(SPECIAL) + len(ALPHABET) + len(MERGED)

CONVERSATIONS: list[list[dict[str, Any]]] = [
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is FSx?"},
        {"role": "assistant", "content": "FSx is a file system."},
        {"role": "user", "content": "And naïve 🙂?"},
        {"role": "assistant", "content": "It isn't: “über” 🙂🙂, said the\nassistant. "},
    ],
    [
        {"role": "user", "content": "The assistant said FSx is a file system."},
        {"role": "assistant", "content": "FSx"},
    ],
    [
        {"role": "user", "content": "3 + 4?", "name": None},
        {"role": "assistant", "content": "7", "tool_calls": None, "reasoning": "Add them."},
    ],
]

CHATML = (
    "{%- if tools is not none %}{{ raise_exception('no tools here') }}{% endif %}\n"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] | trim + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
    "{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\n"
)
PLAIN = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}"
    "Answer: {% generation %}{{ message.content | trim }}{{ eos_token }}{% endgeneration %}"
    "{% else %}{{ message.role | title }}: {{ message.content }}\n{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}Answer: {% endif %}"
)
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' %}{% generation %}"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content | tojson }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message | tojson }}<|im_end|>{% endif %}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "plain": PLAIN, "thinking": THINKING}


def unmarked(template: str) -> str:
    """The same template, which does not say what an answer is."""
    return template.replace("{% generation %}", "").replace("{% endgeneration %}", "")


def write_tokenizer(folder: Path, template: str | None = CHATML) -> Path:
    """``tokenizer.json`` and ``tokenizer_config.json`` as ``transformers`` stores them."""
    vocabulary = {text: number for number, text in enumerate([*SPECIAL, *ALPHABET])}
    for pair in MERGED:
        vocabulary["".join(pair)] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGED))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"eos_token": {"content": "<|im_end|>"}}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder / "tokenizer.json"


def write_conversations(path: Path, conversations: list[Any], *, field: str = "messages") -> Path:
    """JSON lines."""
    path.write_text("".join(json.dumps({field: one}) + "\n" for one in conversations))
    return path
