"""What a page's Python blocks find around them, and what is done with the stacks they define.

All blocks of a page run in order and share their names. ``app``, ``stack``, ``foundation`` and
``job`` stand for what a reader's own application has. At the end of a page every ``Stack`` class
that it defines is made, and the whole app is synthesised. No job may be one that its time cuts off
or whose checkpoints fill the file system.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from aws_cdk import App, Environment, Stack

from cdk_blackwell import Foundation, ModelShape, SmallModelJob

ENVIRONMENT: Final = Environment(account="123456789012", region="us-west-2")
ROOT: Final = Path(__file__).parents[2]
LOSSES: Final = ("run-time", "file-system-size")
"""Warnings that no page may raise: who copies it would lose a run."""


def begin_page(names: dict[str, Any]) -> None:
    """Give a page an app of its own, and a folder to work in with the wheels that travel."""
    folder = tempfile.TemporaryDirectory(prefix="cdkb-docs-")
    names["_folder"], names["_before"] = folder, Path.cwd()
    for shared in ("wheelhouse", "training_scripts", "docs"):
        (Path(folder.name) / shared).symlink_to(ROOT / shared)
    os.chdir(folder.name)
    # A file, not a module, would be named here otherwise, and dataclasses look it up.
    names["__name__"] = "builtins"
    app = App(outdir=f"{folder.name}/cdk.out")
    shared_stack = Stack(app, "SharedStack", env=ENVIRONMENT)
    foundation = Foundation(shared_stack, "Foundation", availability_zone="us-west-2b")
    stack = Stack(app, "MyStack", env=ENVIRONMENT)
    job = SmallModelJob(
        stack,
        "Job",
        foundation=foundation,
        model=ModelShape.preset("llama-3.2-1b"),
        dataset_prefix="tokens",
        sequence_length=8192,
        waive_cost_ceiling=True,
    )
    names.update(app=app, stack=stack, foundation=foundation, job=job)


def synthesise_page(names: dict[str, Any]) -> None:
    """Make the stacks that the page's classes describe and synthesise everything."""
    try:
        for name, value in list(names.items()):
            if _is_stack_of_the_page(value):
                wanted = inspect.signature(value.__init__).parameters
                given = {k: names[k] for k in ("foundation",) if k in wanted}
                value(names["app"], name, env=ENVIRONMENT, **given)
        names["app"].synth()
        told = [
            f"{child.node.path}: {entry.data}"
            for child in names["app"].node.find_all()
            for entry in child.node.metadata
            if any(f"cdk-blackwell:{warning}" in str(entry.data) for warning in LOSSES)
        ]
        assert not told, f"who copies this page loses a run: {told}"
    finally:
        os.chdir(names["_before"])
        names["_folder"].cleanup()


def _is_stack_of_the_page(value: object) -> bool:
    return (
        inspect.isclass(value)
        and issubclass(value, Stack)
        and value is not Stack
        and value.__module__ == "builtins"
    )
