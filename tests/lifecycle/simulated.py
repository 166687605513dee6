"""SageMaker's jobs and their interfaces as they live in the simulation: they end by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.lifecycle.fakes import GROUP, FakeEc2, FakeSageMaker, FakeTime


class SimulatedSageMaker(FakeSageMaker):
    """Jobs that end by themselves, hold interfaces for a while, and are billed."""

    def __init__(self, time: FakeTime) -> None:
        super().__init__(time)
        self.on_create: Callable[[dict[str, Any]], None] = lambda job: None

    def check(self, operation: str, **arguments: Any) -> None:
        """Inputs are checked in the other tests; here there are too many."""

    def create_training_job(self, **request: Any) -> dict[str, Any]:
        answer = super().create_training_job(**request)
        self.on_create(self.jobs[request["TrainingJobName"]])
        return answer

    def tick(self) -> None:
        """Let jobs that were stopped, or used up their time, end."""
        now = self.time.now()
        for job in self.jobs.values():
            began = job["TrainingStartTime"].timestamp()
            limit = began + job["Request"]["StoppingCondition"]["MaxRuntimeInSeconds"]
            if job["TrainingJobStatus"] == "InProgress" and now >= limit:
                self.finish(job, "Stopped", "MaxRuntimeExceeded", limit)
            elif job["TrainingJobStatus"] == "Stopping" and now >= job["StopAt"]:
                self.finish(job, "Stopped", "Stopped", job["StopAt"])

    def finish(self, job: dict[str, Any], status: str, secondary: str, at: float) -> None:
        """The job ends."""
        billed = max(0.0, at - job["TrainingStartTime"].timestamp())
        job |= {"TrainingJobStatus": status, "SecondaryStatus": secondary, "EndedAt": at}
        job["BillableTimeInSeconds"] = round(billed)

    def describe_training_job(self, **arguments: Any) -> dict[str, Any]:
        self.tick()
        answer = super().describe_training_job(**arguments)
        return {key: value for key, value in answer.items() if key != "EndedAt"}

    def stop_training_job(self, **arguments: Any) -> dict[str, Any]:
        self.tick()
        return super().stop_training_job(**arguments)


class SimulatedEc2(FakeEc2):
    """An interface per job, which goes a minute after its job."""

    LINGER = 60.0

    def __init__(self, time: FakeTime, sagemaker: SimulatedSageMaker) -> None:
        super().__init__(time)
        self.sagemaker = sagemaker

    def check(self, operation: str, **arguments: Any) -> None:
        """As for SageMaker."""

    def left(self) -> list[str]:
        """Interfaces in the job's own group."""
        self.sagemaker.tick()
        now = self.time.now()
        return [
            f"eni-{name}"
            for name, job in self.sagemaker.jobs.items()
            if now < job.get("EndedAt", float("inf")) + self.LINGER
        ]

    def describe_network_interfaces(self, **arguments: Any) -> dict[str, Any]:
        (groups,) = (each["Values"] for each in arguments["Filters"])
        names = self.left() if GROUP in groups else []
        return {
            "NetworkInterfaces": [
                {"NetworkInterfaceId": name, "Groups": [{"GroupId": GROUP}]} for name in names
            ]
        }
