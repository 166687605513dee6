"""Fake SageMaker, EC2, SNS and Lambda behind a gate, and a clock that tests move.

Every AWS call passes the gate, which can fail it, or end the function there, before or after its
effect. SageMaker's and EC2's inputs are checked against botocore's own models.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal

import boto3
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

REGION = "us-west-2"
STACK = f"arn:aws:cloudformation:{REGION}:123456789012:stack/SmallModelStack/5b0c1f00"
LOGICAL_ID = "PretrainRun"
TABLE = "controller"
TOPIC = f"arn:aws:sns:{REGION}:123456789012:topic"
CHECKPOINTS, ASSETS, DATASET = "checkpoints", "assets", "dataset"
FUNCTION = f"arn:aws:lambda:{REGION}:123456789012:function:controller"
GROUP, SHARED_GROUP = "sg-0123456789abcdef0", "sg-0fedcba9876543210"


When = Literal["before", "after"]


class Crash(BaseException):
    """The function is gone: time-out, out of memory, power."""


def error(code: str, message: str = "told so by the test", status: int = 400) -> ClientError:
    """A botocore ClientError."""
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(response, "Operation")


@dataclass
class FakeTime:
    """Seconds that pass only when somebody sleeps."""

    seconds: float = 1_800_000_000.0
    slept: float = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.seconds += seconds
        self.slept += seconds


@dataclass
class Gate:
    """What happens to AWS calls."""

    calls: list[str] = field(default_factory=list)
    crash_at: tuple[int, When] | None = None
    """Number of the call (from 0) at which the function is gone."""
    faults: dict[str, list[tuple[When, Exception]]] = field(default_factory=dict)
    """Per operation: what its next calls raise."""
    hooks: dict[str, Callable[[], object]] = field(default_factory=dict)
    """Per operation: what somebody else does just before its next call."""

    def fail(self, operation: str, *errors: Exception, when: When = "before") -> None:
        self.faults.setdefault(operation, []).extend((when, each) for each in errors)

    def wrap(self, operation: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def gated(*args: Any, **kwargs: Any) -> Any:
            index = len(self.calls)
            self.calls.append(operation)
            hook = self.hooks.pop(operation, None)
            if hook:
                hook()
            if self.crash_at == (index, "before"):
                raise Crash
            pending = self.faults.get(operation, [])
            fault = pending.pop(0) if pending else None
            if fault and fault[0] == "before":
                raise fault[1]
            try:
                result = call(*args, **kwargs)
            finally:
                if self.crash_at == (index, "after"):
                    raise Crash
            if fault:
                raise fault[1]
            return result

        return gated


@dataclass
class Pages:
    """A paginator made of one function."""

    paginate: Callable[..., Any]


class Gated:
    """A client whose every operation passes the gate."""

    def __init__(self, client: Any, gate: Gate) -> None:
        self._client, self._gate = client, gate

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._client, name)
        if name == "meta" or not callable(value):
            return value
        if name != "get_paginator":
            return self._gate.wrap(name, value)

        def get_paginator(operation: str) -> Any:
            paginator = value(operation)

            def paginate(**arguments: Any) -> Any:
                return list(paginator.paginate(**arguments))

            return Pages(self._gate.wrap(operation, paginate))

        return get_paginator


@cache
def _session() -> Any:
    return boto3.session.Session(
        aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION
    )


@cache
def real_client(service: str) -> Any:
    """One client for all worlds, because it takes long to make; moto answers it, or nobody."""
    return _session().client(service)


class Checked:
    """Checks inputs against botocore's model of one service."""

    def __init__(self, service: str) -> None:
        self._real = real_client(service)
        self.meta = self._real.meta

    def check(self, operation: str, **arguments: Any) -> None:
        shape = self._real.meta.service_model.operation_model(operation).input_shape
        report = ParamValidator().validate(arguments, shape)
        assert not report.has_errors(), report.generate_report()

    def get_paginator(self, operation: str) -> Any:
        method = getattr(self, operation)
        return Pages(lambda **arguments: [method(**arguments)])


class FakeSageMaker(Checked):
    """Training jobs that take their time to stop."""

    STOP_SECONDS = 100.0

    def __init__(self, time: FakeTime) -> None:
        super().__init__("sagemaker")
        self.time = time
        self.jobs: dict[str, dict[str, Any]] = {}
        self.created: list[str] = []
        self.plans: dict[str, dict[str, Any]] = {}
        self.refuses: ClientError | None = None
        """What every CreateTrainingJob is answered with, for as long as it is set."""

    def create_training_job(self, **request: Any) -> dict[str, Any]:
        self.check("CreateTrainingJob", **request)
        name = request["TrainingJobName"]
        if self.refuses is not None:
            raise self.refuses
        if name in self.jobs:
            raise error("ResourceInUse", "Training job names must be unique")
        self.created.append(name)
        arn = f"arn:aws:sagemaker:{REGION}:123456789012:training-job/{name}"
        self.jobs[name] = {
            "TrainingJobName": name,
            "TrainingJobArn": arn,
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Training",
            "SecondaryStatusTransitions": [{"Status": "Starting"}, {"Status": "Training"}],
            "CreationTime": datetime.fromtimestamp(self.time.now(), UTC),
            "TrainingStartTime": datetime.fromtimestamp(self.time.now(), UTC),
            "Request": request,
        }
        return {"TrainingJobArn": arn}

    def describe_training_job(self, **arguments: Any) -> dict[str, Any]:
        self.check("DescribeTrainingJob", **arguments)
        name = arguments["TrainingJobName"]
        if name not in self.jobs:
            raise error("ValidationException", "Requested resource not found.")
        job = self.jobs[name]
        if job["TrainingJobStatus"] == "Stopping" and self.time.now() >= job["StopAt"]:
            job |= {"TrainingJobStatus": "Stopped", "SecondaryStatus": "Stopped"}
        told = {key: value for key, value in job.items() if key not in ("Request", "StopAt")}
        return told | {"StoppingCondition": job["Request"]["StoppingCondition"]}

    def stop_training_job(self, **arguments: Any) -> dict[str, Any]:
        self.check("StopTrainingJob", **arguments)
        job = self.jobs.get(arguments["TrainingJobName"])
        if job is None:
            raise error("ValidationException", "Requested resource not found.")
        if job["TrainingJobStatus"] != "InProgress":
            raise error("ValidationException", "The job has already ended.")
        job |= {
            "TrainingJobStatus": "Stopping",
            "SecondaryStatus": "Stopping",
            "StopAt": self.time.now() + self.STOP_SECONDS,
        }
        return {}

    def describe_training_plan(self, **arguments: Any) -> dict[str, Any]:
        self.check("DescribeTrainingPlan", **arguments)
        if arguments["TrainingPlanName"] not in self.plans:
            raise error("ResourceNotFound", "no such plan")
        return self.plans[arguments["TrainingPlanName"]]

    def list_tags(self, **arguments: Any) -> dict[str, Any]:
        self.check("ListTags", **arguments)
        (job,) = (j for j in self.jobs.values() if j["TrainingJobArn"] == arguments["ResourceArn"])
        return {"Tags": job["Request"]["Tags"]}

    def end(
        self,
        name: str,
        status: str,
        secondary: str = "",
        reason: str = "",
        *,
        trained: bool = True,
    ) -> dict[str, Any]:
        """The job ends by itself, perhaps before it trained; gives the event's detail."""
        job = self.jobs[name]
        job |= {"TrainingJobStatus": status, "SecondaryStatus": secondary or status}
        job["SecondaryStatusTransitions"] = [
            {"Status": each} for each in ("Starting", *(["Training"] if trained else []), status)
        ]
        if reason:
            job["FailureReason"] = reason
        return self.detail(name)

    def detail(self, name: str) -> dict[str, Any]:
        keys = (
            "TrainingJobName",
            "TrainingJobStatus",
            "SecondaryStatus",
            "SecondaryStatusTransitions",
            "FailureReason",
        )
        return {key: self.jobs[name][key] for key in keys if key in self.jobs[name]}

    def alive(self) -> list[str]:
        """Jobs nobody has even asked to stop."""
        return [n for n, job in self.jobs.items() if job["TrainingJobStatus"] == "InProgress"]

    def holding(self) -> list[str]:
        """Jobs that still hold instances."""
        for name in self.jobs:
            self.describe_training_job(TrainingJobName=name)
        return [
            name
            for name, job in self.jobs.items()
            if job["TrainingJobStatus"] in ("InProgress", "Stopping")
        ]


class FakeEc2(Checked):
    """Security groups with their tags, and interfaces that vanish late."""

    def __init__(self, time: FakeTime) -> None:
        super().__init__("ec2")
        self.time = time
        self.owners = {GROUP: STACK, SHARED_GROUP: "arn:of:another:stack"}
        self.interfaces: dict[str, tuple[str, float]] = {}
        """Id -> group and the time it vanishes."""
        self.descriptions: dict[str, str] = {}
        """What SageMaker wrote on an interface, by its id."""

    def describe_security_groups(self, **arguments: Any) -> dict[str, Any]:
        self.check("DescribeSecurityGroups", **arguments)
        wanted = {each["Name"]: each["Values"] for each in arguments["Filters"]}
        stacks = wanted["tag:aws:cloudformation:stack-id"]
        found = [g for g in wanted["group-id"] if self.owners.get(g) in stacks]
        return {"SecurityGroups": [{"GroupId": group} for group in found]}

    def describe_network_interfaces(self, **arguments: Any) -> dict[str, Any]:
        self.check("DescribeNetworkInterfaces", **arguments)
        (groups,) = (each["Values"] for each in arguments["Filters"])
        found = [
            {
                "NetworkInterfaceId": name,
                "Groups": [{"GroupId": group}],
                "Description": self.descriptions.get(name, ""),
            }
            for name, (group, until) in self.interfaces.items()
            if group in groups and self.time.now() < until
        ]
        return {"NetworkInterfaces": found}


class FakeSns(Checked):
    """Remembers what people were told."""

    def __init__(self) -> None:
        super().__init__("sns")
        self.messages: list[dict[str, str]] = []

    def publish(self, **arguments: Any) -> dict[str, Any]:
        self.check("Publish", **arguments)
        assert len(arguments["Subject"]) <= 100
        self.messages.append(arguments)
        return {"MessageId": "1"}


class FakeEvents(Checked):
    """Remembers what other systems were told."""

    def __init__(self) -> None:
        super().__init__("events")
        self.sent: list[tuple[str, dict[str, Any]]] = []
        """Detail type and detail."""

    def put_events(self, **arguments: Any) -> dict[str, Any]:
        self.check("PutEvents", **arguments)
        (entry,) = arguments["Entries"]
        assert entry["Source"] == "cdk-blackwell"
        self.sent.append((entry["DetailType"], json.loads(entry["Detail"])))
        return {"FailedEntryCount": 0, "Entries": [{"EventId": "1"}]}


class FakeCloudWatch(Checked):
    """GPU utilisation by host, as SageMaker files it: 0-800 on 8 GPUs."""

    def __init__(self) -> None:
        super().__init__("cloudwatch")
        self.utilization: dict[str, list[float]] = {}

    def get_metric_data(self, **arguments: Any) -> dict[str, Any]:
        self.check("GetMetricData", **arguments)
        results = []
        for query in arguments["MetricDataQueries"]:
            metric = query["MetricStat"]["Metric"]
            assert metric["Namespace"] == "/aws/sagemaker/TrainingJobs"
            assert metric["MetricName"] == "GPUUtilization"
            (host,) = (each["Value"] for each in metric["Dimensions"])
            results.append({"Id": query["Id"], "Values": self.utilization.get(host, [])})
        return {"MetricDataResults": results}


class FakeLambda(Checked):
    """Remembers continuations."""

    def __init__(self) -> None:
        super().__init__("lambda")
        self.events: list[dict[str, Any]] = []

    def invoke(self, **arguments: Any) -> dict[str, Any]:
        self.check("Invoke", **arguments)
        assert arguments["InvocationType"] == "Event"
        assert arguments["FunctionName"] == FUNCTION
        self.events.append(json.loads(arguments["Payload"]))
        return {"StatusCode": 202}
