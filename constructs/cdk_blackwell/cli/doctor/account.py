"""Checks of the account: credentials, bootstrap, controller."""

from __future__ import annotations

from typing import Final

from botocore.exceptions import ClientError

from cdk_blackwell.cli.doctor.finding import Finding, Subject, failed, passed
from cdk_blackwell.deployed.controller import ask

BOOTSTRAP_PARAMETER: Final = "/cdk-bootstrap/hnb659fds/version"
"""Of the CDK's default qualifier."""
BOOTSTRAP_VERSION: Final = 6
"""The least that the CDK's default synthesizer takes (its own rule in every template)."""
PROBE_RUN: Final = "doctor"


def credentials(subject: Subject) -> Finding:
    """Whose credentials these are, and whether for the stack's account."""
    found = subject.aws.client("sts").get_caller_identity()
    account = subject.job.stack_id.split(":")[4]
    if found["Account"] != account:
        return failed(
            f"the credentials are for account {found['Account']}, the stack lies in {account}",
            "give another --profile",
        )
    return passed(f"{found['Arn']} in account {account}")


def bootstrap(subject: Subject) -> Finding:
    """The region is bootstrapped, recently enough."""
    fix = f"run 'cdk bootstrap' for {subject.aws.region}"
    try:
        found = subject.aws.client("ssm").get_parameter(Name=BOOTSTRAP_PARAMETER)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound":
            raise
        return failed(f"{subject.aws.region} is not bootstrapped with the default qualifier", fix)
    version = int(found["Parameter"]["Value"])
    if version < BOOTSTRAP_VERSION:
        return failed(f"bootstrap version {version} is older than {BOOTSTRAP_VERSION}", fix)
    return passed(f"version {version}")


def controller(subject: Subject) -> Finding:
    """The function answers, and its boto3 knows every field of the request (a dry run)."""
    answer = ask(subject.aws, subject.job, "start", run_id=PROBE_RUN, dry_run=True)
    if answer.state == "refused":
        return failed(answer.message, "put it right, then deploy again where the stack is named")
    return passed("a dry run is accepted; its boto3 knows every field of the request")
