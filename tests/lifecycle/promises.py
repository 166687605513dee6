"""What holds in the simulation, whatever fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdk_blackwell.lifecycle.handler.resource import physical_id
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.planning.contracts import TAG_RUN_ID
from cdk_blackwell.planning.cost import worst_case_usd
from tests.lifecycle.fakes import LOGICAL_ID, STACK, FakeSns, FakeTime
from tests.lifecycle.memory import MemoryDynamoDB
from tests.lifecycle.scenery import (
    ANSWER_WITHIN,
    CEILING,
    JOB,
    NO_CAPACITY,
    PERIODS,
    PRICE,
    SWEEP,
    Broken,
    Frame,
    Sent,
)
from tests.lifecycle.simulated import SimulatedEc2, SimulatedSageMaker


class Promises:
    """The checks; `Simulation` has what they look at."""

    time: FakeTime
    sagemaker: SimulatedSageMaker
    ec2: SimulatedEc2
    sns: FakeSns
    dynamodb: MemoryDynamoDB
    quiet: Services
    frames: list[Frame]
    sent: list[Sent]
    asked: set[str]
    over: set[str]
    broken: list[str]

    @property
    def owner(self) -> str:
        return physical_id(STACK, LOGICAL_ID)

    def run_of(self, job: Mapping[str, Any]) -> str:
        tags = {tag["Key"]: tag["Value"] for tag in job["Request"]["Tags"]}
        return str(tags[TAG_RUN_ID])

    def _created(self, job: dict[str, Any]) -> None:
        """Checked at the very moment: a job exists."""
        self.frames[-1].created.append(job["TrainingJobName"])
        run_id = self.run_of(job)
        if run_id not in self.asked:
            self._break(f"no launch unasked: {job['TrainingJobName']}")
        siblings = [each for each in self.sagemaker.jobs.values() if self.run_of(each) == run_id]
        alive = [s["TrainingJobName"] for s in siblings if "EndedAt" not in s]
        if len(alive) > 1:
            self._break(f"one live job per run: {alive}")
        committed = sum(self._cost(each) for each in siblings)
        if committed > CEILING + 1:
            self._break(f"ceiling: {committed:,.2f} USD committed of {CEILING:,.2f}")
        counted = sum(
            not each.get("FailureReason", "").startswith(NO_CAPACITY) for each in siblings
        )
        if counted > JOB.maximum_attempts:
            self._break(f"max_attempts: {counted} that could have had instances")

    def _cost(self, job: Mapping[str, Any]) -> float:
        if "EndedAt" in job:
            return float(job["BillableTimeInSeconds"]) / 3600 * PRICE
        return worst_case_usd(
            max_runtime_seconds=job["Request"]["StoppingCondition"]["MaxRuntimeInSeconds"],
            instance_count=1,
            hourly_price_usd=PRICE,
        )

    def _check_looked_again(self, frame: Frame) -> None:
        """Whoever launched in peace leaves no job that is not wanted, not even until the sweep."""
        for name in frame.created if self.dynamodb.exists else ():
            job = self.sagemaker.jobs[name]
            owner = self.quiet.store.owner(self.owner)
            wanted = owner is not None and owner.wants(self.run_of(job))
            if job["TrainingJobStatus"] == "InProgress" and not wanted:
                self._break(f"looked again: {name} was launched although its run was stopped")

    def check_gone(self, what: str) -> None:
        """After an answered Delete: no job, no interface."""
        self.sagemaker.tick()
        holding = [n for n, job in self.sagemaker.jobs.items() if "EndedAt" not in job]
        if holding or self.ec2.left():
            raise Broken(f"nothing left after {what}: {holding} {self.ec2.left()}")

    def _break(self, what: str) -> None:
        # The controller catches exceptions, so this one is raised when its invocation is over.
        self.broken.append(what)

    def check_answers(self) -> None:
        """What broke inside an invocation; and no event waits longer than CloudFormation does."""
        if self.broken:
            raise Broken(self.broken[0])
        for sent in self.sent:
            if not sent.answers and self.time.now() - sent.at > ANSWER_WITHIN:
                raise Broken(f"answered in time: {sent.event['RequestType']}")
            if sent.answers and sent.answers[0][0] - sent.at > ANSWER_WITHIN:
                raise Broken(f"answered in time: {sent.event['RequestType']}")

    def check_settled(self) -> None:
        """After `calm`: every job has its run, every ended run its end and its message."""
        self.check_answers()
        unanswered = [s.event["RequestType"] for s in self.sent if not s.answers]
        if unanswered:
            raise Broken(f"answered in time: {unanswered}")
        owner = self.quiet.store.owner(self.owner)
        for name, job in self.sagemaker.jobs.items():
            run_id = self.run_of(job)
            wanted = owner is not None and owner.wants(run_id)
            if job["TrainingJobStatus"] == "InProgress" and not wanted:
                raise Broken(f"no orphan: {name} is alive, its run is not wanted")
            if run_id in self.over and "EndedAt" not in job:
                raise Broken(f"over: {name} lives on after a deploy that ended its run")
        for attempt in self.quiet.store.attempts():
            job = self.sagemaker.jobs.get(attempt.job_name, {})
            recent = self.time.now() - job.get("EndedAt", 0.0) < PERIODS * SWEEP
            if "EndedAt" in job and not attempt.settled and not recent:
                raise Broken(f"reported end: {attempt}")
        self._check_reported()

    def _check_reported(self) -> None:
        by_run: dict[str, list[dict[str, Any]]] = {}
        for job in self.sagemaker.jobs.values():
            by_run.setdefault(self.run_of(job), []).append(job)
        for run_id, jobs in by_run.items():
            run = self.quiet.store.run(self.owner, run_id)
            newest = jobs[-1]
            recent = self.time.now() - newest.get("EndedAt", self.time.now()) < PERIODS * SWEEP
            waiting = any(
                a.state == "claimed" for a in self.quiet.store.attempts(self.owner, run_id)
            )
            if recent or waiting:
                continue
            if run is None or run.state == "running":
                raise Broken(f"reported end: run {run_id} is {run and run.state}")
            ends = ("completed", "failed", "stopped", "could not", "money", "ended")
            told = [m["Subject"] for m in self.sns.messages if f" {run_id}: " in m["Subject"]]
            if not any(word in subject for subject in told for word in ends):
                raise Broken(f"reported end: nobody was told how {run_id} ended: {told}")
