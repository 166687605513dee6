"""What a check is given and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.lifecycle.handler.definition import JobDefinition

Verdict = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One deployed job."""

    aws: Aws
    job: DeployedJob
    definition: JobDefinition

    @property
    def request(self) -> Mapping[str, Any]:
        """The CreateTrainingJob request, with placeholders."""
        return self.definition.request

    @property
    def resources(self) -> Mapping[str, Any]:
        """Its ResourceConfig."""
        found: Mapping[str, Any] = self.request["ResourceConfig"]
        return found

    def subnet(self) -> Mapping[str, Any]:
        """The one subnet of all instances, as EC2 describes it."""
        ids = self.request["VpcConfig"]["Subnets"]
        found: Mapping[str, Any] = self.aws.client("ec2").describe_subnets(SubnetIds=ids)[
            "Subnets"
        ][0]
        return found


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line: what was looked at, how it stands, and what to do."""

    verdict: Verdict
    text: str
    fix: str = ""
    """Empty when nothing needs to be done."""


Check = Callable[[Subject], Finding]


def passed(text: str) -> Finding:
    """All is well."""
    return Finding(verdict="pass", text=text)


def warned(text: str, fix: str) -> Finding:
    """A launch may go wrong."""
    return Finding(verdict="warn", text=text, fix=fix)


def failed(text: str, fix: str) -> Finding:
    """A launch will go wrong."""
    return Finding(verdict="fail", text=text, fix=fix)
