"""A deployed job for the command line: moto around the real controller and a fake SageMaker."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cdk_blackwell.cli.main import app
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.planning.contracts import StackOutput
from tests.lifecycle.fakes import CHECKPOINTS, DATASET, REGION, TABLE, TOPIC, real_client
from tests.lifecycle.world import World

STACK = "SmallModelStack"
OUTPUT = StackOutput(
    controller="controller",
    job="pretrain",
    tier="small",
    checkpoint_bucket=CHECKPOINTS,
    dataset_bucket=DATASET,
    topic=TOPIC,
    table=TABLE,
    dashboard="dashboard",
)


class Lambda:
    """Invocations reach the real handler."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events: list[dict[str, Any]] = []

    def invoke(self, **arguments: Any) -> dict[str, Any]:
        assert arguments["FunctionName"] == OUTPUT.controller
        event = json.loads(arguments["Payload"])
        self.events.append(event)
        answer = self.world.deliver(event)
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}


class Deployment:
    """The command line against one deployed job, in this process."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.functions = Lambda(world)
        self.clients: dict[str, Any] = {"lambda": self.functions, "sagemaker": world.sagemaker}
        monkeypatch.setattr(Aws, "client", self._client)
        world.cloudformation("Create")

    def _client(self, service: str) -> Any:
        return self.clients.get(service) or real_client(service)

    def stack(self, name: str = STACK, **outputs: Any) -> None:
        """Deploy a stack with these outputs."""
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {
                key: {"Value": value if isinstance(value, str) else json.dumps(asdict(value))}
                for key, value in (outputs or {"CdkBlackwellpretrain": OUTPUT}).items()
            },
        }
        real_client("cloudformation").create_stack(
            StackName=name, TemplateBody=json.dumps(template)
        )

    def run(self, *words: str, typed: str | None = None) -> Result:
        """One command; ``typed`` is what a person answers."""
        return CliRunner().invoke(app, [*words, "--region", REGION], input=typed)

    def json(self, *words: str) -> Any:
        """One command that ends well, and its JSON."""
        done = self.run(*words, "--json")
        if done.exception is not None:
            raise done.exception
        return json.loads(done.stdout)
