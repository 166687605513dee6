"""The command line's own AWS, which is never real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto import mock_aws

from tests.cli.deployment import Deployment
from tests.lifecycle.world import World


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_DATA_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        made = Deployment(World(), monkeypatch)
        made.stack()
        yield made
