"""Messages to people, through SNS: what happened, to what, and what can be done."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from cdk_blackwell.lifecycle.handler.records import Attempt

_SUBJECT_LENGTH: Final = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Notifier:
    """Publishes to the job's topic."""

    sns: Any
    topic: str

    def tell(
        self, *, what: str, job: str, run_id: str, text: str, facts: dict[str, str] | None = None
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


def console_link(attempt: Attempt) -> str:
    """Page of the attempt's training job in the AWS console, by the partition of its stack."""
    _, partition, _, region, *_ = attempt.stack_id.split(":")
    domain = {"aws-cn": "amazonaws.cn", "aws-us-gov": "amazonaws-us-gov.com"}.get(
        partition, "aws.amazon.com"
    )
    return (
        f"https://{region}.console.{domain}/sagemaker/home?region={region}#/jobs/{attempt.job_name}"
    )
