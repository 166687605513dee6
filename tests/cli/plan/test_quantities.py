"""Numbers are read as people write them, and everything else is refused by name."""

from __future__ import annotations

import pytest
import typer

from cdk_blackwell.cli.quantities import amount, count, length, money


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("8192", 8192),
        ("131_072", 131_072),
        ("131,072", 131_072),
        ("32k", 32_768),
        ("128K", 131_072),
        ("4M", 4_194_304),
        ("1.5k", 1536),
        (" 8k ", 8192),
    ],
)
def test_lengths_count_in_powers_of_two(text: str, tokens: int) -> None:
    assert length(text) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("300B", 300 * 10**9), ("1.5t", 1_500_000_000_000), ("20M", 20_000_000), ("7", 7)],
)
def test_amounts_of_data_count_in_powers_of_ten(text: str, tokens: int) -> None:
    assert amount(text) == tokens


@pytest.mark.parametrize(
    "text",
    ["", "k", "abc", "-1", "1e3", "0x10", "1.5", "1__0", "_1", "1,", "8kk", "8B", "٣k", "1" * 50],
)
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"not a plain whole number; give 32768"):
        length(text)


def test_a_count_of_nodes_has_no_suffix() -> None:
    assert count("64") == 64
    with pytest.raises(typer.BadParameter):
        count("1k")


def test_money_may_have_cents_and_a_sign() -> None:
    assert money("$98.84") == 98.84
    assert money("30,000") == 30_000
    for text in ("9k", "free", "-1", "1.2.3"):
        with pytest.raises(typer.BadParameter, match="US dollars"):
            money(text)


def test_huge_numbers_are_read_exactly_and_left_to_the_planner() -> None:
    assert count("1" + "0" * 30) == 10**30
