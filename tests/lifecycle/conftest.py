"""A fresh world per test; AWS in it is never real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from moto import mock_aws

from cdk_blackwell.lifecycle.handler import cloudformation
from tests.lifecycle.world import World


@pytest.fixture(autouse=True)
def _dummy_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_DATA_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look rarely, for tests that wait an hour."""
    monkeypatch.setattr(cloudformation, "POLL_SECONDS", (60.0,))


@contextmanager
def _world() -> Iterator[World]:
    with mock_aws():
        yield World()


@pytest.fixture
def world() -> Iterator[World]:
    with _world() as made:
        yield made


@pytest.fixture
def new_world() -> Callable[[], object]:
    """For tests that need many worlds: a context manager."""
    return _world
