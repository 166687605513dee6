"""What a deployed job would launch is read from its controller's table, or it is said why not."""

from __future__ import annotations

import pytest

from cdk_blackwell.cli.errors import AwsRefusedError
from cdk_blackwell.deployed.definition import read_definition
from cdk_blackwell.deployed.jobs import find_job
from cdk_blackwell.deployed.session import Aws, open_aws
from cdk_blackwell.lifecycle.handler import definition as versions
from tests.cli.deployment import OUTPUT, Deployment
from tests.lifecycle.fakes import REGION


@pytest.fixture
def aws(deployment: Deployment) -> Aws:
    return open_aws(None, REGION)


def test_it_is_the_deployed_one(deployment: Deployment, aws: Aws) -> None:
    assert read_definition(aws, find_job(aws, None, None)).job == OUTPUT.job


def test_fails_while_the_stack_is_being_deleted(deployment: Deployment, aws: Aws) -> None:
    deployment.world.cloudformation("Delete")
    with pytest.raises(AwsRefusedError, match="holds no definition"):
        read_definition(aws, find_job(aws, None, None))


def test_fails_on_another_version_by_naming_the_stack(
    deployment: Deployment, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "SCHEMA_VERSION", 99)
    with pytest.raises(AwsRefusedError, match=r"SmallModelStack was deployed with another version"):
        read_definition(aws, find_job(aws, None, None))
