"""EventBridge: events reach their targets in order, one queue and one thread per target.

moto matches events with rules, but knows no Lambda and SNS targets, delivers inside the caller,
and has no clock for schedules.
"""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from cdk_blackwell.local.lambda_runtime import current_runtime, find_function
from cdk_blackwell.local.world import World

SCHEDULE_CHECK_SECONDS: Final = 5.0
_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_UNIT_SECONDS: Final = {"minute": 60, "hour": 3600, "day": 86400}


def rate_seconds(expression: str) -> int | None:
    """Seconds between two runs of ``rate(5 minutes)``; None for anything else."""
    match = _RATE.fullmatch(expression)
    return int(match[1]) * _UNIT_SECONDS[match[2]] if match else None


def iso_time(value: Any = None) -> str:
    """``2027-01-15T12:00:00Z`` from seconds since 1970, or now; text stays."""
    if isinstance(value, str):
        return value
    moment = datetime.now(UTC) if value is None else datetime.fromtimestamp(float(value), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def complete(region: str, account: str, event: dict[str, Any]) -> dict[str, Any]:
    """Fill in the members that every event has."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "account": account,
        "region": region,
        "resources": [],
        **{key: value for key, value in event.items() if key != "ingestion-time"},
        "time": iso_time(event.get("time")),
    }


class EventBus:
    """Delivers events of one embedded AWS."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._queues: dict[str, queue.Queue[Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._due: dict[str, float] = {}

    def publish(self, region: str, account: str, event: dict[str, Any]) -> None:
        """Offer an event to every rule of the default bus."""
        from moto.events.models import events_backends

        whole = complete(region, account, event)
        bus = events_backends[account][region].event_buses["default"]
        for rule in list(bus.rules.values()):
            self.offer(rule, whole)

    def offer(self, rule: Any, event: dict[str, Any]) -> None:
        """Deliver an event to a rule's targets, if the rule is for it."""
        # moto's empty pattern matches everything; a scheduled rule has one.
        if rule.state != "ENABLED" or not rule.event_pattern.get_pattern():
            return
        whole = complete(rule.region_name, rule.account_id, event)
        if rule.event_pattern.matches_event(whole):
            self._send(rule, whole)

    def start_schedules(self) -> None:
        """Fire ``rate(...)`` rules in a thread until ``stop``."""
        threading.Thread(target=self._run_schedules, name="schedules", daemon=True).start()

    def stop(self) -> None:
        """Deliver nothing more."""
        self._stopped.set()

    def _run_schedules(self) -> None:
        while not self._stopped.wait(SCHEDULE_CHECK_SECONDS):
            self.fire_due(time.monotonic())

    def fire_due(self, now: float) -> None:
        """Fire every rule whose interval has passed; the first time is one interval after it was
        first seen."""
        from moto.events.models import events_backends

        rules = [
            rule
            for backend in events_backends[self._world.account].values()
            for bus in list(backend.event_buses.values())
            for rule in list(bus.rules.values())
        ]
        for rule in rules:
            seconds = rate_seconds(rule.scheduled_expression or "")
            if seconds is None or rule.state != "ENABLED":
                continue
            due = self._due.setdefault(rule.arn, now + seconds)
            if now >= due:
                self._due[rule.arn] = now + seconds
                event = {
                    "source": "aws.events",
                    "detail-type": "Scheduled Event",
                    "resources": [rule.arn],
                    "detail": {},
                }
                self._send(rule, complete(rule.region_name, rule.account_id, event))
        alive = {rule.arn for rule in rules}
        self._due = {arn: due for arn, due in self._due.items() if arn in alive}

    def _send(self, rule: Any, event: dict[str, Any]) -> None:
        for target in list(rule.targets):
            text = target_input(target, event)
            self._queue(target["Arn"]).put(
                lambda target=target, text=text: self._deliver(rule, target, text)  # type: ignore[misc]
            )

    def _queue(self, arn: str) -> queue.Queue[Callable[[], None]]:
        with self._lock:
            if arn not in self._queues:
                self._queues[arn] = queue.Queue()
                threading.Thread(
                    target=self._work, args=(self._queues[arn],), name=f"events-{arn}", daemon=True
                ).start()
            return self._queues[arn]

    def _work(self, waiting: queue.Queue[Callable[[], None]]) -> None:
        while True:
            deliver = waiting.get()
            if self._stopped.is_set():
                return
            try:
                deliver()
            except (ClientError, BotoCoreError, LookupError) as error:
                print(f"event not delivered: {error}", file=sys.stderr, flush=True)

    def _deliver(self, rule: Any, target: dict[str, Any], text: str) -> None:
        arn = target["Arn"]
        service, region, account, name = arn.split(":", 5)[2:6]
        client = self._world.client
        if service == "lambda":
            outcome = current_runtime().run(find_function(account, region, arn), text)
            if outcome.errored:
                self._bury(rule, target, text, outcome.message)
        elif service == "sns":
            client("sns", region).publish(TopicArn=arn, Message=text)
        elif service == "sqs":
            group = (target.get("SqsParameters") or {}).get("MessageGroupId")
            url = client("sqs", region).get_queue_url(QueueName=name)["QueueUrl"]
            client("sqs", region).send_message(
                QueueUrl=url, MessageBody=text, **({"MessageGroupId": group} if group else {})
            )
        elif service == "logs":
            group_name = name.removeprefix("log-group:").removesuffix(":*")
            logs, stream = client("logs", region), str(uuid.uuid4())
            logs.create_log_stream(logGroupName=group_name, logStreamName=stream)
            entry = {"timestamp": int(time.time() * 1000), "message": text}
            logs.put_log_events(logGroupName=group_name, logStreamName=stream, logEvents=[entry])
        else:
            raise LookupError(f"the embedded AWS cannot deliver events to {arn}")

    def _bury(self, rule: Any, target: dict[str, Any], text: str, message: str) -> None:
        print(f"target {target['Arn']} of rule {rule.name} failed: {message}", file=sys.stderr)
        arn = (target.get("DeadLetterConfig") or {}).get("Arn")
        if arn:
            sqs = self._world.client("sqs", rule.region_name)
            url = sqs.get_queue_url(QueueName=arn.rsplit(":", 1)[1])["QueueUrl"]
            sqs.send_message(QueueUrl=url, MessageBody=text)


def target_input(target: dict[str, Any], event: dict[str, Any]) -> str:
    """What a target gets: the event, or what Input, InputPath or InputTransformer make of it."""
    if target.get("Input"):
        return str(target["Input"])
    if target.get("InputPath"):
        return json.dumps(_at(event, target["InputPath"]))
    transformer = target.get("InputTransformer")
    if not transformer:
        return json.dumps(event)
    text = str(transformer["InputTemplate"])
    for name, path in (transformer.get("InputPathsMap") or {}).items():
        value = _at(event, path)
        text = text.replace(f"<{name}>", value if isinstance(value, str) else json.dumps(value))
    return text


def _at(event: dict[str, Any], path: str) -> Any:
    value: Any = event
    for key in path.removeprefix("$").strip(".").split("."):
        if key:
            value = value.get(key) if isinstance(value, dict) else None
    return value


# --- Into moto -----------------------------------------------------------------------------------

_current: EventBus | None = None


def install(world: World) -> EventBus:
    """Make moto's rules deliver here."""
    from moto.events.models import Rule

    global _current
    _current = bus = EventBus(world)

    def send_to_targets(rule: Any, original_event: Any, transform_input: bool = True) -> None:
        bus.offer(rule, dict(original_event))

    Rule.send_to_targets = send_to_targets
    return bus


def publish_event(region: str, account: str, event: dict[str, Any]) -> None:
    """Publish an AWS service's own event: ``source``, ``detail-type``, ``detail`` at least."""
    if _current is None:
        raise RuntimeError("the event bus is not installed")
    _current.publish(region, account, event)
