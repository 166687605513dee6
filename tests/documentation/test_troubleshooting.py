"""Every message that the troubleshooting page quotes is one that the program says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documentation.messages import is_said

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
QUOTED = re.findall(r"^### `(.+)`$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("message", QUOTED)
def test_it_is_in_the_sources(message: str) -> None:
    assert is_said(message)


def test_there_is_one_entry_a_message() -> None:
    assert len(QUOTED) == len(set(QUOTED)) > 40


def test_an_invented_message_would_be_found_out() -> None:
    assert not is_said("the wheelhouse … is full, and a job in a private subnet cannot install")


def test_every_entry_says_what_to_do() -> None:
    for entry in PAGE.read_text().split("\n### ")[1:]:
        message, text = entry.split("\n", 1)
        assert len(text.split("\n## ")[0].split()) > 5, message
