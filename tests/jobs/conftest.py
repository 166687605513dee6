"""A stack with a foundation, made anew for every test that adds to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import App, Environment, Stack

from cdk_blackwell import Foundation
from tests.jobs.examples import REGION, ZONE


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    app = App(outdir=str(tmp_path / "out"))
    return Stack(app, "Mine", env=Environment(region=REGION))


@pytest.fixture
def foundation(stack: Stack) -> Foundation:
    return Foundation(stack, "Foundation", availability_zone=ZONE)
