"""All checks, in the order that they are shown in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from botocore.exceptions import ClientError

from cdk_blackwell.cli.aws.failures import NO_PERMISSION, explain
from cdk_blackwell.cli.doctor import account, capacity, network, storage
from cdk_blackwell.cli.doctor.finding import Check, Finding, Subject, failed, warned

CHECKS: Final[Mapping[str, Check]] = {
    "credentials": account.credentials,
    "bootstrap": account.bootstrap,
    "quota": capacity.quota,
    "zone": capacity.zone,
    "training plan": capacity.training_plan,
    "free addresses": network.addresses,
    "file system": network.file_system,
    "image": storage.image,
    "dataset": storage.dataset,
    "bucket policies": storage.bucket_policies,
    "keys": storage.keys,
    "controller": account.controller,
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """A finding and the check that made it."""

    check: str
    finding: Finding


def examine(subject: Subject) -> Iterator[Result]:
    """Every check. What AWS does not let a check see is a warning of that check; what AWS says is
    not there has failed it."""
    for name, check in CHECKS.items():
        yield Result(check=name, finding=_finding(check, subject))


def _finding(check: Check, subject: Subject) -> Finding:
    try:
        return check(subject)
    except Exception as error:
        expected = explain(error)
        if expected is None:
            raise
        text = f"could not be looked at: {expected}"
        if isinstance(error, ClientError) and error.response["Error"]["Code"] not in NO_PERMISSION:
            return failed(text, "put right what AWS names, then deploy again")
        return warned(text, "give a --profile with more rights, or try again")
