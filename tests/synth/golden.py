"""Golden templates: a construct's whole template, with what only depends on code masked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aws_cdk import Stack
from aws_cdk.assertions import Template

FOLDER: Final = Path(__file__).parent / "templates"
UPDATE: Final = "CDKB_UPDATE_GOLDEN"
"""Set to 1 to write the templates as they are now; read the difference before you commit it."""

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_MASKED_PROPERTIES: Final = ("Definition", "DashboardBody")
"""Both hold the plan's numbers, which have tests of their own."""


def masked(template: Mapping[str, Any]) -> dict[str, Any]:
    """Without asset hashes (aws-cdk#13468: they churn) and without the plan's numbers."""
    text = _HASH.sub("<asset hash>", json.dumps(template))
    value: dict[str, Any] = json.loads(text)
    for resource in value["Resources"].values():
        for name in _MASKED_PROPERTIES:
            if name in resource.get("Properties", {}):
                resource["Properties"][name] = f"<{name}>"
    return value


def check_golden(stack: Stack, name: str) -> None:
    """Compare with ``templates/<name>.json``, resource by resource, so that a failure is short."""
    path = FOLDER / f"{name}.json"
    now = masked(Template.from_stack(stack).to_json())
    if os.environ.get(UPDATE) == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    then = json.loads(path.read_text())
    for part in sorted(set(now) | set(then)):
        here, there = now.get(part, {}), then.get(part, {})
        changed = sorted(key for key in {*here, *there} if here.get(key) != there.get(key))
        assert not changed, (
            f"{path.name}: {part} differs in {', '.join(changed)}; where that is meant, write it "
            f"anew with {UPDATE}=1"
        )
