"""Packages from an index: what the container is told and what its role may do."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Environment, Stack

from cdk_blackwell import PackageIndex

ACCOUNT = "123456789012"


@pytest.fixture
def stack() -> Stack:
    return Stack(App(), "Stack", env=Environment(account=ACCOUNT, region="us-west-2"))


def test_the_default_index_needs_no_rights(stack: Stack) -> None:
    index = PackageIndex.default()
    assert index.environment_value(stack.account) == "default"
    assert index.statements(stack) == []


def test_a_repository_is_read_and_nothing_more(stack: Stack) -> None:
    index = PackageIndex.code_artifact(domain="team", repository="python")
    assert index.environment_value(stack.account) == f"codeartifact:team:{ACCOUNT}:python"
    token, packages, bearer = (s.to_statement_json() for s in index.statements(stack))
    place = f":codeartifact:us-west-2:{ACCOUNT}:"
    assert place + "domain/team" in str(stack.resolve(token["Resource"]))
    assert place + "repository/team/python" in str(stack.resolve(packages["Resource"]))
    assert bearer["Condition"] == {
        "StringEquals": {"sts:AWSServiceName": "codeartifact.amazonaws.com"}
    }


def test_a_domain_of_another_account_is_named_by_it(stack: Stack) -> None:
    index = PackageIndex.code_artifact(
        domain="team", repository="python", domain_owner="210987654321"
    )
    assert index.environment_value(stack.account) == "codeartifact:team:210987654321:python"


@pytest.mark.parametrize(
    "props",
    [
        {"domain": "Team", "repository": "python"},
        {"domain": "team", "repository": "a:b"},
        {"domain": "team", "repository": "python", "domain_owner": "12"},
    ],
)
def test_fails_for_names_that_codeartifact_does_not_have(props: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"CodeArtifact .* is not usable"):
        PackageIndex.code_artifact(**props)
