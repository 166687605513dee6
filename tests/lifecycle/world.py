"""A small world for the controller: fake services, and moto's S3 and DynamoDB."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from botocore.exceptions import ClientError

from cdk_blackwell.lifecycle.handler.clock import Clock
from cdk_blackwell.lifecycle.handler.cloudformation import Invocation
from cdk_blackwell.lifecycle.handler.definition import (
    ControllerAnswer,
    JobDefinition,
    S3Object,
)
from cdk_blackwell.lifecycle.handler.main import EVENT_JOB_STATE, EVENT_SCHEDULED, route
from cdk_blackwell.lifecycle.handler.origin import Origin
from cdk_blackwell.lifecycle.handler.records import Attempt, Owner
from cdk_blackwell.lifecycle.handler.resource import physical_id
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.planning.contracts import PROGRESS_FILE, RunLocation, training_job_name
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import default_optimizer
from cdk_blackwell.planning.records import Progress
from cdk_blackwell.planning.run_spec import (
    Checkpoint,
    Data,
    Layout,
    Limits,
    Recipe,
    RunSpec,
)
from tests.lifecycle.fakes import (
    ASSETS,
    CHECKPOINTS,
    DATASET,
    FUNCTION,
    GROUP,
    LOGICAL_ID,
    REGION,
    SHARED_GROUP,
    STACK,
    TABLE,
    TOPIC,
    FakeCloudWatch,
    FakeEc2,
    FakeEvents,
    FakeLambda,
    FakeSageMaker,
    FakeSns,
    FakeTime,
    Gate,
    Gated,
    real_client,
)

ANSWER_URL = (
    f"https://cloudformation-custom-resource-response-uswest2.s3-{REGION}.amazonaws.com/presigned"
)

MODEL = ModelShape(
    name="tiny",
    vocab_size=512,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
)

RUN = RunSpec(
    schema_version=1,
    run_id="any",
    job="pretrain",
    tier="small",
    model=MODEL,
    recipe=Recipe(
        precision="bf16",
        sequence_length=256,
        global_batch_tokens=4096,
        micro_batch_size=4,
        activation_checkpointing="none",
        loss_chunks=1,
        compile=True,
        seed=1,
        optimizer=default_optimizer(MODEL, train_steps=200),
    ),
    layout=Layout(shard_gpus=8, replicas=1, context_parallel=1, tensor_parallel=1),
    data=Data(channel="dataset", manifest="manifest.json", validation_sequences=8),
    train_tokens=819_200,
    checkpoint=Checkpoint(interval_seconds=600.0, keep=2, export=True),
    limits=Limits(in_cluster_restarts=1, log_interval_steps=10, validation_interval_steps=100),
)

PROGRESS = Progress(
    attempt=1,
    step=1_000,
    tokens=4_096_000,
    loss=2.5,
    validation_loss=None,
    last_complete_step=0,
    time="2027-01-15T12:00:00+00:00",
)


def definition(**changes: Any) -> JobDefinition:
    """A complete definition of a small job."""
    request = {
        "TrainingJobName": "{{job_name}}",
        "RoleArn": "arn:aws:iam::123456789012:role/training",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "{{run_uri}}/export/"},
        "ResourceConfig": {
            "InstanceType": "ml.p6-b200.48xlarge",
            "InstanceCount": 1,
            "VolumeSizeInGB": 500,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 86_400, "MaxPendingTimeInSeconds": 7_200},
        "VpcConfig": {"SecurityGroupIds": [GROUP, SHARED_GROUP], "Subnets": ["subnet-1"]},
        "Environment": {"CDKB_RUN_ID": "{{run_id}}", "CDKB_ATTEMPT": "{{attempt}}"},
        "Tags": [{"Key": "team", "Value": "language"}],
    }
    values: dict[str, Any] = {
        "schema_version": 1,
        "job": "pretrain",
        "request": request,
        "run": {key: value for key, value in RUN.to_dict().items() if key != "run_id"},
        "bundle": {"bucket": ASSETS, "key": "bundle.tar.gz"},
        "checkpoint_bucket": CHECKPOINTS,
        "dataset_manifest": {"bucket": DATASET, "key": "tokens/manifest.json"},
        "maximum_attempts": 5,
        "instance_count": 1,
        "hourly_price_usd": 113.93,
        "max_cost_usd": None,
    }
    values |= {
        key: asdict(value) if isinstance(value, S3Object) else value
        for key, value in changes.items()
    }
    return JobDefinition.from_json(json.dumps(values))


class World:
    """Everything around one controller."""

    def __init__(self) -> None:
        self.time = FakeTime()
        self.gate = Gate()
        self.sagemaker = FakeSageMaker(self.time)
        self.ec2 = FakeEc2(self.time)
        self.sns = FakeSns()
        self.events = FakeEvents()
        self.functions = FakeLambda()
        self.cloudwatch = FakeCloudWatch()
        self.s3 = real_client("s3")
        self.dynamodb = real_client("dynamodb")
        self.answers: list[dict[str, Any]] = []
        self.unreachable = 0
        """How many of the next answers CloudFormation does not take."""
        self._ids = 0
        for bucket in (CHECKPOINTS, ASSETS, DATASET):
            self.s3.create_bucket(
                Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION}
            )
        self.s3.put_object(Bucket=ASSETS, Key="bundle.tar.gz", Body=b"the bundle")
        self.s3.put_object(Bucket=DATASET, Key="tokens/manifest.json", Body=b"{}")
        self.dynamodb.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            KeySchema=[
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
        )
        clients = {
            "sagemaker": self.sagemaker,
            "ec2": self.ec2,
            "sns": self.sns,
            "events": self.events,
            "lambda": self.functions,
            "cloudwatch": self.cloudwatch,
            "s3": self.s3,
            "dynamodb": self.dynamodb,
        }
        clock = Clock(now=self.time.now, sleep=self.time.sleep)

        def services(clients: Mapping[str, Any]) -> Services:
            return Services.assemble(
                clients, table=TABLE, topic=TOPIC, origin=Origin(stack_id=STACK), clock=clock
            )

        self.services = services({name: Gated(c, self.gate) for name, c in clients.items()})
        self.quiet = services(clients)
        """The same, past the gate: for the test's own looks."""

    # --- Delivering events -----------------------------------------------------------------------

    def new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def deliver(
        self, event: Mapping[str, Any], *, invocation: str | None = None, seconds: float = 900.0
    ) -> dict[str, Any] | None:
        """One invocation of the function, which has ``seconds`` to live."""
        until = self.time.now() + seconds
        return route(
            self.services,
            event,
            Invocation(
                request_id=invocation or self.new_id(),
                function_arn=FUNCTION,
                remaining_seconds=lambda: until - self.time.now(),
            ),
            send_once=self._take_answer,
        )

    def _take_answer(self, url: str, body: bytes) -> None:
        self.gate.wrap("answer", self._answer)(url, body)

    def _answer(self, url: str, body: bytes) -> None:
        if self.unreachable:
            self.unreachable -= 1
            raise OSError("connection reset")
        assert url == ANSWER_URL
        assert len(body) <= 4096
        self.answers.append(json.loads(body))

    def event(
        self,
        kind: str,
        *,
        run_id: str | None = None,
        old_run_id: str | None = None,
        job: JobDefinition | None = None,
        text: str | None = None,
    ) -> dict[str, Any]:
        """A CloudFormation event; with strings only, as they arrive."""
        body = text if text is not None else json.dumps((job or definition()).to_dict())
        properties = {"ServiceToken": FUNCTION, "Definition": body}
        event: dict[str, Any] = {
            "RequestType": kind,
            "RequestId": f"cfn-{self.new_id()}",
            "ResponseURL": ANSWER_URL,
            "StackId": STACK,
            "LogicalResourceId": LOGICAL_ID,
            "ResourceType": "Custom::CdkBlackwellRun",
            "ResourceProperties": {**properties, **({"RunId": run_id} if run_id else {})},
        }
        if kind != "Create":
            event["PhysicalResourceId"] = physical_id(STACK, LOGICAL_ID)
        if kind == "Update":
            old = {"RunId": old_run_id} if old_run_id else {}
            event["OldResourceProperties"] = {**properties, **old}
        return event

    def cloudformation(self, kind: str, **arguments: Any) -> dict[str, Any]:
        """Deliver an event with all its continuations; the one answer."""
        before = len(self.answers)
        self.deliver(self.event(kind, **arguments))
        self.run_continuations()
        assert len(self.answers) == before + 1, "exactly one answer"
        return self.answers[-1]

    def run_continuations(self) -> int:
        """Deliver the function's own continuations until there are none."""
        count = 0
        while self.functions.events:
            self.deliver(self.functions.events.pop(0))
            count += 1
        return count

    def job_event(self, detail: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": self.new_id(),
            "source": "aws.sagemaker",
            "detail-type": EVENT_JOB_STATE,
            "detail": dict(detail),
        }

    def sweep(self) -> None:
        """The five-minute reconcile."""
        self.deliver({"id": self.new_id(), "source": "aws.events", "detail-type": EVENT_SCHEDULED})

    def claim(self, run_id: str = "a", *, by: str) -> None:
        """Another invocation's first claim, which nobody has brought to SageMaker yet."""
        owner = self.owner()
        self.quiet.store.claim_first(
            owner,
            run_id=run_id,
            job_name=self.name(run_id),
            definition=owner.definition,
            requester=by,
        )

    def ask(self, action: str, run_id: str | None = None, **more: Any) -> dict[str, Any]:
        """A direct invocation."""
        answer = self.deliver({"action": action, "run_id": run_id, **more})
        assert answer is not None
        assert ControllerAnswer.from_dict(json.loads(json.dumps(answer))).to_dict() == answer
        return answer

    def fails(
        self, name: str, reason: str, *, step: int | None = None, trained: bool = True
    ) -> dict[str, Any]:
        """A job fails, and its event is delivered; gives the event."""
        if step is not None:
            self.progress(step)
        event = self.job_event(self.sagemaker.end(name, "Failed", reason=reason, trained=trained))
        self.deliver(event)
        return event

    # --- Looking ---------------------------------------------------------------------------------

    def name(self, run_id: str, attempt: int = 1) -> str:
        return training_job_name(job="pretrain", stack_id=STACK, run_id=run_id, attempt=attempt)

    def owner(self) -> Owner:
        found = self.quiet.store.owner(physical_id(STACK, LOGICAL_ID))
        assert found is not None
        return found

    def attempt(self, run_id: str, attempt: int = 1) -> Attempt | None:
        return self.quiet.store.attempt(self.name(run_id, attempt))

    def run_state(self, run_id: str) -> str:
        run = self.quiet.store.run(physical_id(STACK, LOGICAL_ID), run_id)
        assert run is not None
        return run.state

    def progress(self, step: int, run_id: str = "a", **more: Any) -> None:
        """The trainer reports its newest complete checkpoint."""
        where = RunLocation(bucket=CHECKPOINTS, job="pretrain", run_id=run_id)
        body = replace(PROGRESS, last_complete_step=step, **more).to_json()
        self.s3.put_object(Bucket=where.bucket, Key=where.key(PROGRESS_FILE), Body=body.encode())

    def frozen(self, name: str, run_id: str = "a") -> bytes | None:
        """An object of the run's prefix."""
        where = RunLocation(bucket=CHECKPOINTS, job="pretrain", run_id=run_id)
        try:
            answer = self.s3.get_object(Bucket=where.bucket, Key=where.key(name))
        except ClientError:
            return None
        body: bytes = answer["Body"].read()
        return body

    def subjects(self) -> list[str]:
        return [message["Subject"] for message in self.sns.messages]
