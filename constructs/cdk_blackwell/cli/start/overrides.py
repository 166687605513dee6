"""``--set name=value``: one value of the recipe or the run, changed for this launch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cdk_blackwell.cli.errors import CommandError


def read_overrides(settings: Sequence[str]) -> dict[str, Any]:
    """Names and values; a value is JSON where it can be (numbers, true, null), else text.

    What names there are and what they may hold is the controller's to judge.
    """
    overrides: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise CommandError(f"--set {setting!r} is not name=value, for example recipe.seed=7")
        if name in overrides:
            raise CommandError(f"--set {name} is given twice")
        try:
            overrides[name] = json.loads(text)
        except ValueError:
            overrides[name] = text
    return overrides
