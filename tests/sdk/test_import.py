"""Without the SDK the bridge says what to install."""

from __future__ import annotations

import importlib.util
import sys

import pytest


def test_fails_by_naming_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in [name for name in sys.modules if name.startswith("cdk_blackwell.sdk")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'cdk-blackwell\[sdk\]'"):
        import cdk_blackwell.sdk  # noqa: F401
