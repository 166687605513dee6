"""Live detail stays on one line of 80 columns, beside a title of any length."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.text import Text

from cdk_blackwell.cli.demo.screen import WIDTH, Phase


@pytest.mark.parametrize("title", ["Attempt 1", "cdk deploy FoundationStack", "x" * 90])
def test_live_detail_is_cut_to_what_the_title_leaves(title: str) -> None:
    status = Console(width=WIDTH).status(title)
    Phase(title=title, _status=status).detail("12/43 EC2::VPCEndpoint [create] " * 9)
    shown = Text.from_markup(str(status.status))
    assert shown.plain.startswith(title)
    assert len("⠋ " + shown.plain.rstrip()) <= max(WIDTH, len("⠋ " + title))
    assert len(title) > WIDTH or "12/43 EC2::VPCEndpoint [create]" in shown.plain
