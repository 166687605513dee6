"""Sessions and clients: the one place where they are made."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Final

import boto3
from botocore.config import Config

from cdk_blackwell.deployed.errors import CommandError

READ: Final = Config(
    connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 5}
)
"""Reading may be repeated."""
INVOKE: Final = Config(connect_timeout=5, read_timeout=900, retries={"total_max_attempts": 1})
"""A launch may not: the answer to a repetition would be that the run_id is already used. A function
answers within Lambda's 15 minutes."""


@dataclass(frozen=True, kw_only=True)
class Aws:
    """One profile in one region."""

    session: Any
    region: str
    _clients: dict[str, Any] = field(default_factory=dict, repr=False)

    def client(self, service: str) -> Any:
        """A client of ``service``, made once."""
        if service not in self._clients:
            config = INVOKE if service == "lambda" else READ
            self._clients[service] = self.session.client(service, config=config)
        return self._clients[service]


def open_aws(profile: str | None, region: str | None) -> Aws:
    """A session as the AWS command line would make it; CommandError where no region is set.

    :param profile: of the AWS configuration files. None: ``AWS_PROFILE``, else the default one.
    :param region: None: ``AWS_DEFAULT_REGION`` or ``AWS_REGION``, else the profile's.
    """
    session: Any = boto3.session.Session(
        profile_name=profile, region_name=region or os.environ.get("AWS_REGION") or None
    )
    if session.region_name is None:
        raise CommandError(
            "no AWS region is set: give --region, for example --region us-west-2, or set "
            "AWS_DEFAULT_REGION"
        )
    return Aws(session=session, region=session.region_name)
