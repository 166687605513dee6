"""Whose events the controller obeys.

Whoever may invoke the function can hand it something that looks like CloudFormation's event, delete
a run with it, or have the answer sent anywhere. So such an event must name this function's own
stack and an address where CloudFormation takes answers.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from cdk_blackwell.lifecycle.handler.definition import ENV_STACK_ID

ENV_ENDPOINT: Final = "AWS_ENDPOINT_URL"
"""Set where AWS is not Amazon's own; then answers go there too."""

_AWS_HOST: Final = re.compile(r"[a-z0-9][a-z0-9.-]*\.amazonaws\.com(\.cn)?")

log = logging.getLogger(__name__)


class ForeignEventError(ValueError):
    """Not an event of this function's stack: it is neither obeyed nor answered."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What an event of CloudFormation must match."""

    stack_id: str | None
    """The function's own stack; None where it was deployed without saying so."""
    endpoint_url: str | None = None

    @classmethod
    def from_environment(cls) -> Origin:
        """As the construct, and an embedded AWS, set it."""
        return cls(
            stack_id=os.environ.get(ENV_STACK_ID) or None,
            endpoint_url=os.environ.get(ENV_ENDPOINT) or None,
        )

    def check(self, event: Mapping[str, Any]) -> None:
        """ForeignEventError unless the event belongs to this stack."""
        if self.stack_id is None:
            # A stack's own events must be answered all the same, or the deploy hangs for an hour.
            log.error(
                "%s is not set, so an event of another stack, or a forged one, cannot be told "
                "from this stack's own; deploy the stack again with this version of cdk-blackwell",
                ENV_STACK_ID,
            )
        elif event.get("StackId") != self.stack_id:
            raise ForeignEventError(
                f"the event's StackId is {event.get('StackId')!r}; this controller obeys "
                f"{self.stack_id} only"
            )
        self._check_url(str(event.get("ResponseURL")))

    def _check_url(self, url: str) -> None:
        parts = urlsplit(url)
        if self.endpoint_url is not None:
            allowed = urlsplit(self.endpoint_url).netloc
            if parts.scheme not in ("http", "https") or parts.netloc != allowed:
                raise ForeignEventError(f"the event's ResponseURL is not at {allowed}")
        elif parts.scheme != "https" or not _AWS_HOST.fullmatch(parts.hostname or ""):
            raise ForeignEventError(
                "the event's ResponseURL is not an https address below .amazonaws.com or "
                ".amazonaws.com.cn"
            )
