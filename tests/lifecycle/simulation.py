"""A world in which anything may fail at any moment, and the promises that hold in it all the same.

CloudFormation sends one event at a time and follows its documented order (a failed Create is
deleted, a failed Update is undone). Lambda repeats a crashed asynchronous event twice. EventBridge
loses, repeats and reorders job events; the sweep comes every five minutes, whatever else happens,
also in the middle of an invocation that waits. Every service call may fail before or after its
effect, take long, or see another invocation of the function run in between.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from botocore.exceptions import ReadTimeoutError

from cdk_blackwell.lifecycle.handler.clock import Clock
from cdk_blackwell.lifecycle.handler.cloudformation import Invocation
from cdk_blackwell.lifecycle.handler.main import EVENT_JOB_STATE, EVENT_SCHEDULED, route
from cdk_blackwell.lifecycle.handler.origin import Origin
from cdk_blackwell.lifecycle.handler.resource import physical_id
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.planning.contracts import TAG_RUN_ID
from tests.lifecycle.fakes import (
    ASSETS,
    CHECKPOINTS,
    DATASET,
    FUNCTION,
    LOGICAL_ID,
    STACK,
    TABLE,
    TOPIC,
    Crash,
    FakeCloudWatch,
    FakeEvents,
    FakeLambda,
    FakeSns,
    FakeTime,
    Gated,
    error,
)
from tests.lifecycle.memory import MemoryDynamoDB, MemoryS3
from tests.lifecycle.promises import Promises
from tests.lifecycle.scenery import (
    BODY,
    DELAY,
    DEPTH,
    FUNCTION_SECONDS,
    NO_CAPACITY,
    PERIODS,
    RETRIES,
    STALL,
    SWEEP,
    Call,
    Frame,
    Plan,
    Sent,
)
from tests.lifecycle.simulated import SimulatedEc2, SimulatedSageMaker
from tests.lifecycle.world import ANSWER_URL, PROGRESS


class CutOff(Crash):
    """An invocation cannot go on for a reason that only the simulation has."""


class Simulation(Promises):
    """One stack with one job, and what is promised about it."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.sagemaker = SimulatedSageMaker(self.time)
        self.sagemaker.on_create = self._created
        self.ec2 = SimulatedEc2(self.time, self.sagemaker)
        self.sns, self.functions = FakeSns(), FakeLambda()
        self.told = FakeEvents()
        self.dynamodb, self.s3 = MemoryDynamoDB(), MemoryS3()
        self.s3.put_object(Bucket=ASSETS, Key="bundle.tar.gz", Body=b"the bundle")
        self.s3.put_object(Bucket=DATASET, Key="tokens/manifest.json", Body=b"{}")
        self.clients = {
            "sagemaker": self.sagemaker,
            "ec2": self.ec2,
            "sns": self.sns,
            "events": self.told,
            "lambda": self.functions,
            "cloudwatch": FakeCloudWatch(),
            "s3": self.s3,
            "dynamodb": self.dynamodb,
        }
        clock = Clock(now=self.time.now, sleep=self._sleep)
        self.services = self._services({k: Gated(v, self) for k, v in self.clients.items()}, clock)  # type: ignore[arg-type]
        self.quiet = self._services(self.clients, clock)
        self.queue: list[Call] = []
        self.frames: list[Frame] = []
        self.next_sweep = self.time.now() + SWEEP
        self.sent: list[Sent] = []
        self.asked: set[str] = set()
        """Runs that a changed run_id or a person asked for."""
        self.over: set[str] = set()
        """Runs that a deploy replaced, removed or rolled back, by CloudFormation's own account."""
        self.faults: Counter[str] = Counter()
        self.accidents = 0
        """Invocations that did not come to their end."""
        self.broken: list[str] = []
        self.goes_with_its_stack = False
        """Whether a Delete is of the whole stack, not of the resource in one that stays."""
        self._ids = itertools.count(1)

    @staticmethod
    def _services(clients: Mapping[str, Any], clock: Clock) -> Services:
        return Services.assemble(
            clients, table=TABLE, topic=TOPIC, origin=Origin(stack_id=STACK), clock=clock
        )

    # --- Time and invocations --------------------------------------------------------------------

    def _sleep(self, seconds: float) -> None:
        frame = self.frames[-1]
        # One thread plays all invocations, so one that runs beside another cannot outlast its
        # pause: it dies there and comes again. Nobody is held up longer than AWS would.
        if len(self.frames) > 1 and self.time.now() + seconds > self.frames[-2].wakes:
            raise CutOff
        if self.time.now() + seconds >= frame.until:
            self.advance(max(0.0, frame.until - self.time.now()))
            raise Crash("the function's time was up")
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass; what falls due in it runs, also beside an invocation that waits."""
        end = self.time.now() + seconds
        if self.frames:
            self.frames[-1].wakes = end
        while len(self.frames) < DEPTH:
            due = min([self.next_sweep] + [call.due for call in self.queue])
            if due > end:
                break
            self.time.seconds = max(self.time.now(), due)
            self.sagemaker.tick()
            if due == self.next_sweep:
                self.next_sweep += SWEEP
                self.invoke(self.call(self.sweep_event()))
            else:
                self.work()
        self.time.seconds = max(self.time.now(), end)
        self.sagemaker.tick()

    def let_pass(self, seconds: float) -> None:
        """Let time pass outside of any invocation; what falls due runs."""
        end = self.time.now() + seconds
        while True:
            while self.work():
                pass
            if self.time.now() >= end:
                return
            due = min([call.due for call in self.queue] + [end])
            self.advance(min(due, end) - self.time.now())

    def call(self, event: dict[str, Any], plan: Plan = (), *, retried: bool = True) -> Call:
        """A first invocation for an event."""
        identity = f"invocation-{next(self._ids)}"
        return Call(event=event, plan=plan, due=self.time.now(), identity=identity, retried=retried)

    def invoke(self, call: Call) -> dict[str, Any] | None:
        """Run the function once; what Lambda repeats is put back into the queue."""
        frame = Frame(plan=dict(call.plan), until=self.time.now() + FUNCTION_SECONDS)
        accidents = self.accidents
        self.frames.append(frame)
        answer: dict[str, Any] | None = None
        try:
            answer = route(
                self.services,
                call.event,
                Invocation(
                    request_id=call.identity,
                    function_arn=FUNCTION,
                    remaining_seconds=lambda: frame.until - self.time.now(),
                ),
                send_once=lambda url, body: self.wrap("answer", self._answer)(url, body),
            )
        except CutOff:
            self.accidents += 1
            if call.retried:
                # Lambda had no part in it, so it costs none of its tries.
                self.queue.append(replace(call, plan=(), due=self.time.now() + 60.0))
        except (Crash, Exception):
            self.accidents += 1
            self._repeat(call)
        else:
            if accidents == self.accidents:
                self._check_looked_again(frame)
        finally:
            self.frames.pop()
        for event in self.functions.events:
            self.queue.append(self.call(event))
        self.functions.events.clear()
        return answer

    def _repeat(self, call: Call) -> None:
        if not call.retried or call.tries >= RETRIES:
            return
        # The last repetition meets no fault: a function that dies three times has no more chance.
        plan = call.plan if call.tries + 1 < RETRIES and call.tries == 0 else ()
        later = self.time.now() + 60.0 * (call.tries + 1)
        self.queue.append(
            Call(
                event=call.event,
                plan=tuple((index + 3, kind) for index, kind in plan),
                due=later,
                identity=call.identity,
                tries=call.tries + 1,
            )
        )

    def work(self, index: int = 0) -> bool:
        """Run one invocation that is due, if there is one."""
        due = [call for call in self.queue if call.due <= self.time.now()]
        if not due:
            return False
        call = due[index % len(due)]
        self.queue.remove(call)
        self.invoke(call)
        return True

    def wrap(self, operation: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The gate of `Gated`: every service call passes here."""

        def gated(*args: Any, **kwargs: Any) -> Any:
            frame = self.frames[-1]
            fault = frame.plan.pop(frame.calls, None)
            frame.calls += 1
            if fault is not None:
                self.faults[f"{fault} {operation}"] += 1
            if fault == "delay":
                self._sleep(DELAY)
            if fault == "stall":
                self._sleep(max(0.0, frame.until - FUNCTION_SECONDS + STALL - self.time.now()))
            if fault == "between" and len(self.frames) < DEPTH:
                frame.wakes = self.time.now()
                self.work()
            if self.time.now() >= frame.until or fault == "crash before":
                raise Crash
            if fault == "error before":
                raise (
                    OSError("no route") if operation == "answer" else error("Internal", status=500)
                )
            result = call(*args, **kwargs)
            if fault == "crash after":
                raise Crash
            if fault == "error after":
                raise (
                    ReadTimeoutError(endpoint_url="https://aws")
                    if operation != "answer"
                    else (OSError("connection reset"))
                )
            return result

        return gated

    # --- Events ----------------------------------------------------------------------------------

    def sweep_event(self) -> dict[str, Any]:
        return {"id": f"sweep-{next(self._ids)}", "detail-type": EVENT_SCHEDULED}

    def job_event(self, name: str) -> dict[str, Any]:
        return {
            "id": f"event-{next(self._ids)}",
            "source": "aws.sagemaker",
            "detail-type": EVENT_JOB_STATE,
            "detail": self.sagemaker.detail(name),
        }

    def send(self, kind: str, plan: Plan, *, run_id: str | None, old: str | None = None) -> Sent:
        """CloudFormation sends an event."""
        properties = {"ServiceToken": FUNCTION, "Definition": BODY}
        event: dict[str, Any] = {
            "RequestType": kind,
            "RequestId": f"request-{next(self._ids)}",
            "ResponseURL": ANSWER_URL,
            "StackId": STACK,
            "LogicalResourceId": LOGICAL_ID,
            "PhysicalResourceId": physical_id(STACK, LOGICAL_ID),
            "ResourceProperties": {**properties, **({"RunId": run_id} if run_id else {})},
        }
        if kind == "Update":
            event["OldResourceProperties"] = {**properties, **({"RunId": old} if old else {})}
        sent = Sent(event=event, at=self.time.now())
        self.sent.append(sent)
        self.queue.append(self.call(event, plan))
        return sent

    def _answer(self, url: str, body: bytes) -> None:
        answer = json.loads(body)
        (sent,) = (s for s in self.sent if s.event["RequestId"] == answer["RequestId"])
        sent.answers.append((self.time.now(), answer))
        deleted = (sent.event["RequestType"], answer["Status"]) == ("Delete", "SUCCESS")
        if deleted and self.goes_with_its_stack:
            # Table and function go; what runs of the function runs on.
            self.dynamodb.exists = False
            self.queue.clear()
            self.next_sweep = float("inf")
        statuses = {each["Status"] for _, each in sent.answers}
        if len(statuses) > 1 or len(sent.answers) > 1 + self._lost_answers():
            self._break(f"one answer: {sent.answers}")

    def _lost_answers(self) -> int:
        # Who does not hear that an answer arrived can only send it again.
        return sum(
            count
            for name, count in self.faults.items()
            if name in ("error after answer", "crash after answer") or name.endswith(" update_item")
        )

    def job_ends(self, name: str, status: str, reason: str, step: int) -> None:
        """A job ends by itself, perhaps with progress."""
        job = self.sagemaker.jobs[name]
        if step and not reason.startswith(NO_CAPACITY):
            tags = {tag["Key"]: tag["Value"] for tag in job["Request"]["Tags"]}
            key = f"pretrain/runs/{tags[TAG_RUN_ID]}/progress.json"
            body = replace(PROGRESS, last_complete_step=step).to_json().encode()
            self.s3.put_object(Bucket=CHECKPOINTS, Key=key, Body=body)
        if reason:
            job["FailureReason"] = reason
        self.sagemaker.finish(job, status, status, self.time.now())
        if reason.startswith(NO_CAPACITY):
            # It waited for instances until now, and never had one.
            job["SecondaryStatusTransitions"] = [{"Status": "Pending"}, {"Status": status}]
            job["BillableTimeInSeconds"] = 0

    def calm(self) -> None:
        """Let what is on its way arrive, without new faults, for two periods and a little."""
        for call in self.queue:
            call.plan = ()
        self.let_pass(PERIODS * SWEEP)
