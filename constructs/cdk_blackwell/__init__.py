"""AWS CDK constructs for training models of up to 64B parameters on NVIDIA B200.

The public API is what this module exports. Names are loaded on first use, so that
``cdk_blackwell.planning`` (which also runs inside the training container and in Lambda) needs
neither ``aws_cdk`` nor ``torch``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cdk_blackwell._version import __version__

if TYPE_CHECKING:
    from cdk_blackwell.planning.model_shape import ModelShape

_EXPORTS = {
    "ModelShape": "cdk_blackwell.planning.model_shape",
}

__all__ = ["ModelShape", "__version__"]


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
