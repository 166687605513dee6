"""Telling of what happened: people through SNS, other systems through EventBridge."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from cdk_blackwell.lifecycle.handler.happenings import DETAIL_TYPES, EVENT_SOURCE, Happening

_SUBJECT_LENGTH: Final = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Notifier:
    """Publishes to the job's topic, and to the account's default event bus."""

    sns: Any
    events: Any
    topic: str

    def tell(
        self, *, what: str, job: str, run_id: str, text: str, facts: Mapping[str, str] | None = None
    ) -> bool:
        """Publish one message; whether the topic took it.

        A topic that fails is logged and never stops the controller.
        """
        subject = f"{job} {run_id}: {what}".encode("ascii", "replace").decode()[:_SUBJECT_LENGTH]
        lines = [text, "", f"run: {run_id}", f"job: {job}"]
        lines += [f"{key}: {value}" for key, value in (facts or {}).items() if value]
        log.info("%s: %s", subject, text)
        try:
            self.sns.publish(TopicArn=self.topic, Subject=subject, Message="\n".join(lines))
        except (ClientError, BotoCoreError):
            log.exception("the topic %s did not take the message %r", self.topic, subject)
            return False
        return True

    def announce(self, what: Happening, detail: Mapping[str, Any]) -> None:
        """Send one event. It is best effort, as EventBridge itself: a refusal is logged."""
        entry = {
            "Source": EVENT_SOURCE,
            "DetailType": DETAIL_TYPES[what],
            "Detail": json.dumps(detail),
        }
        try:
            answer = self.events.put_events(Entries=[entry])
        except (ClientError, BotoCoreError):
            log.exception("the event %r could not be sent", entry["DetailType"])
            return
        if answer["FailedEntryCount"]:
            log.error("the event %r was not taken: %s", entry["DetailType"], answer["Entries"])
