"""Conversations become the tokens and the assistant mask that ``transformers`` makes of them."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

import prepare_data
from preparation import documents
from preparation.chat import ChatTemplate
from preparation.errors import InputError
from preparation.shards import SplitWriter
from tests.training_scripts.chats import (
    CHATML,
    CONVERSATIONS,
    TEMPLATES,
    VOCABULARY,
    unmarked,
    write_conversations,
    write_tokenizer,
)
from trainer.data import SequenceReader, find_shard_damage
from trainer.head import IGNORED_TARGET
from trainer.manifest import Manifest


def prepare(folder: Path, tokenizer: Path, conversations: list[Any], *more: str) -> int:
    file = write_conversations(folder.with_suffix(".jsonl"), conversations)
    return prepare_data.main(
        [
            *("--input", str(file), "--output", str(folder), "--tokenizer", str(tokenizer)),
            *("--chat", "--validation-fraction", "0", *more),
        ]
    )


def read(folder: Path) -> tuple[list[int], list[int]]:
    """Tokens and masks of the training split."""
    shards = Manifest.read(folder / "manifest.json").splits["train"]
    tokens = [np.fromfile(folder / shard.file, dtype="<u2") for shard in shards]
    masks = [np.fromfile(folder / shard.mask_file, dtype="u1") for shard in shards]
    return np.concatenate(tokens).tolist(), np.concatenate(masks).tolist()


def of_transformers(tokenizer: Path, template: str) -> tuple[list[int], list[int]]:
    """All conversations, one after the other."""
    fast = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer), eos_token="<|im_end|>")
    tokens: list[int] = []
    masks: list[int] = []
    for conversation in CONVERSATIONS:
        out = fast.apply_chat_template(
            conversation,
            chat_template=template,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        tokens += out["input_ids"]
        masks += out["assistant_masks"]
    return tokens, masks


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_tokens_and_mask_are_those_of_transformers(name: str, marked: bool, tmp_path: Path) -> None:
    """A template without marks gives the mask that it would give with them."""
    template = TEMPLATES[name]
    tokenizer = write_tokenizer(tmp_path / "t", template if marked else unmarked(template))
    assert prepare(tmp_path / "out", tokenizer, CONVERSATIONS) == 0
    tokens, masks = of_transformers(tokenizer, template)
    assert read(tmp_path / "out") == (tokens, masks)
    assert 0 < sum(masks) < len(masks)


def test_the_mask_holds_what_the_assistant_says_and_the_end_of_its_turn(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "t")
    assert prepare(tmp_path / "out", tokenizer, CONVERSATIONS[:2]) == 0
    tokens, masks = read(tmp_path / "out")
    fast = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer))
    said = [token for token, counts in zip(tokens, masks, strict=True) if counts]
    assert fast.decode(said) == (
        "FSx is a file system.<|im_end|>"
        "It isn't: “über” 🙂🙂, said the\nassistant.<|im_end|>"
        "FSx<|im_end|>"
    )


def test_a_template_in_a_file_beside_the_tokenizer_or_given_comes_first(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "t", "{{ raise_exception('the wrong one') }}")
    (tmp_path / "t/chat_template.jinja").write_text(TEMPLATES["plain"])
    (tmp_path / "given.jinja").write_text(CHATML)
    assert prepare(tmp_path / "beside", tokenizer, CONVERSATIONS) == 0
    given = ("--chat-template", str(tmp_path / "given.jinja"))
    assert prepare(tmp_path / "given", tokenizer, CONVERSATIONS, *given) == 0
    assert read(tmp_path / "beside") == of_transformers(tokenizer, TEMPLATES["plain"])
    assert read(tmp_path / "given") == of_transformers(tokenizer, CHATML)


def test_a_user_who_writes_the_marks_is_not_the_assistant() -> None:
    text = "{% generation %}not mine{% endgeneration %}"
    conversation = [{"role": "user", "content": text}, {"role": "assistant", "content": "mine"}]
    rendered = ChatTemplate(CHATML).render(conversation)
    assert text in rendered.text
    assert [rendered.text[a:b] for a, b in rendered.spans] == ["mine<|im_end|>"]


def test_a_template_goes_to_other_processes_without_its_program() -> None:
    template = ChatTemplate(CHATML, {"eos_token": "x"})
    first = template.render(CONVERSATIONS[0])
    again = pickle.loads(pickle.dumps(template))
    assert again == template
    assert again.render(CONVERSATIONS[0]) == first


def test_several_processes_write_the_same_bytes(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "t")
    assert prepare(tmp_path / "one", tokenizer, CONVERSATIONS * 20) == 0
    assert prepare(tmp_path / "two", tokenizer, CONVERSATIONS * 20, "--workers", "2") == 0
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_conversations_without_an_answer_are_left_out(tmp_path: Path, capsys: Any) -> None:
    tokenizer = write_tokenizer(tmp_path / "t")
    question = [{"role": "user", "content": "?"}]
    assert prepare(tmp_path / "out", tokenizer, [question, [], *CONVERSATIONS]) == 0
    assert "2 documents left out" in " ".join(capsys.readouterr().err.split())
    assert read(tmp_path / "out") == of_transformers(tokenizer, CHATML)
    assert prepare(tmp_path / "none", tokenizer, [question]) == 2
    assert "no conversation with an answer of the assistant" in capsys.readouterr().err


FORGETFUL = (
    "{% for message in messages %}"
    "{% if loop.last or message.role != 'assistant' %}{{ message.role }}: {{ message.content }}\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
REFUSALS: dict[str, tuple[str | None, Any, str]] = {
    "no-template": (None, CONVERSATIONS[0], "give --chat-template FILE"),
    "not-jinja": ("{% if %}", CONVERSATIONS[0], "the chat template is not valid"),
    "refused": ("{{ raise_exception('only pairs') }}", CONVERSATIONS[0], "only pairs"),
    "unsafe": ("{{ messages.__class__.mro() }}", CONVERSATIONS[0], "the chat template refuses"),
    "forgetful": (FORGETFUL, CONVERSATIONS[0], "turn 3 of a conversation differently"),
    "text": (CHATML, "no list", "a conversation must be a list like"),
    "no-role": (CHATML, [{"from": "human", "value": "x"}], "a conversation must be a list like"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_rendered_is_refused_in_one_line(
    name: str, tmp_path: Path, capsys: Any
) -> None:
    template, conversation, message = REFUSALS[name]
    tokenizer = write_tokenizer(tmp_path / "t", template)
    assert prepare(tmp_path / "out", tokenizer, [conversation]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out/manifest.json").exists()


def test_a_template_that_forgets_answers_can_mark_them_instead() -> None:
    marked = FORGETFUL.replace(
        "{{ message.content }}",
        "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}"
        "{% endgeneration %}{% else %}{{ message.content }}{% endif %}",
    )
    rendered = ChatTemplate(marked).render(CONVERSATIONS[0])
    assert [rendered.text[a:b] for a, b in rendered.spans] == [CONVERSATIONS[0][4]["content"]]


def test_without_jinja_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert prepare(tmp_path / "out", write_tokenizer(tmp_path / "t"), CONVERSATIONS) == 2
    assert "pip install 'cdk-blackwell[train]'" in capsys.readouterr().err


# --- Masks on disk -------------------------------------------------------------------------------

SHARDS = ("--shard-tokens", "200")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("documents_written", [2, 7, 13])
def test_an_interrupted_preparation_goes_on_with_its_masks(
    documents_written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_data, "JOURNAL_SECONDS", 0.0)
    monkeypatch.setattr(documents, "STRETCH_BYTES", 400)
    monkeypatch.setattr(documents, "FILES_PER_TASK", 1)
    tokenizer = write_tokenizer(tmp_path / "t")
    conversations = CONVERSATIONS * 5
    assert prepare(tmp_path / "whole", tokenizer, conversations, *SHARDS) == 0
    # Of the same file, whose name and time are part of the request.
    write = SplitWriter.write
    left = documents_written

    def interrupted(self: SplitWriter, tokens: Any, mask: Any) -> None:
        nonlocal left
        write(self, tokens, mask)
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    arguments = [
        *("--input", str(tmp_path / "whole.jsonl"), "--output", str(tmp_path / "out"), "--chat"),
        *("--tokenizer", str(tokenizer), "--validation-fraction", "0", *SHARDS),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(SplitWriter, "write", interrupted)
        assert prepare_data.main(arguments) == 130
    assert prepare_data.main(arguments) == 0
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    assert sum(name.endswith(".mask") for name in files_of(tmp_path / "out")) > 2


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    tokenizer = write_tokenizer(folder / "t")
    assert prepare(folder / "chats", tokenizer, CONVERSATIONS * 5, *SHARDS) == 0
    (folder / "text.jsonl").write_text('{"text": "Every token of a text counts."}\n' * 20)
    status = prepare_data.main(
        [
            *("--input", str(folder / "text.jsonl"), "--output", str(folder / "text")),
            *("--tokenizer", str(tokenizer), "--validation-fraction", "0"),
        ]
    )
    assert status == 0
    assert prepare_data.main(["--output", str(folder), "--mix", "chats=1", "text=1"]) == 0
    return folder


@pytest.mark.parametrize("damage", ["missing", "truncated", "corrupt"])
def test_a_damaged_mask_is_named(damage: str, masked: Path) -> None:
    folder = masked / "chats"
    manifest = Manifest.read(folder / "manifest.json")
    path = folder / manifest.splits["train"][1].mask_file
    content = path.read_bytes()
    changed = {"truncated": content[:-1], "corrupt": bytes([content[0] ^ 1]) + content[1:]}
    try:
        path.unlink() if damage == "missing" else path.write_bytes(changed[damage])
        assert f"{path} is {damage}" in str(find_shard_damage(folder, manifest))
        assert (find_shard_damage(folder, manifest, checksums=False) is None) == (
            damage == "corrupt"
        )
    finally:
        path.write_bytes(content)


def test_in_a_mixture_the_texts_count_whole_and_the_chats_in_part(masked: Path) -> None:
    manifest = Manifest.read(masked / "manifest.json")
    length = 16
    reader = SequenceReader(
        masked, manifest, "train", sequence_length=length, vocab_size=VOCABULARY
    )
    assert reader.masked
    chats, texts = reader.lengths["chats"], reader.lengths["text"]
    batch = reader.batch(np.arange(chats + texts))
    counts = (batch.targets_BS != IGNORED_TARGET).numpy()
    assert counts[chats:].all()
    tokens, masks = read(masked / "chats")
    first = manifest.splits["train"][0].tokens
    for number in range((first - 1) // length):
        here = slice(number * length + 1, (number + 1) * length + 1)
        assert counts[number].tolist() == [mask == 1 for mask in masks[here]]
        wanted = np.where(np.array(masks[here]) == 1, tokens[here], IGNORED_TARGET)
        assert batch.targets_BS[number].tolist() == wanted.tolist()


def test_an_unknown_message_field_is_no_reason_to_fail() -> None:
    with pytest.raises(InputError, match="refuses a conversation"):
        ChatTemplate(CHATML).render([{"role": "user"}])
    extra = [{"role": "user", "content": "a", "weight": 3}, {"role": "assistant", "content": "b"}]
    assert ChatTemplate(CHATML).render(extra).text.endswith("b<|im_end|>\n")
