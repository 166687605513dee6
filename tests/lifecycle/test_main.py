"""The entry point as Lambda loads it: a fresh process, its environment, nothing but boto3."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cdk_blackwell.lifecycle.handler.main as main
from cdk_blackwell.lifecycle.handler.definition import ENV_TABLE, ENV_TOPIC
from cdk_blackwell.lifecycle.handler.services import Services
from tests.lifecycle.fakes import TABLE, TOPIC
from tests.lifecycle.world import World

HANDLER = Path(main.__file__).parent
ALLOWED = {"boto3", "botocore", "cdk_blackwell"}


def test_imports_boto3_and_the_standard_library_only() -> None:
    for file in HANDLER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in names:
                top = name.split(".")[0]
                assert top in ALLOWED or top in sys.stdlib_module_names, (file.name, name)
                if top == "cdk_blackwell":
                    assert name.startswith(
                        ("cdk_blackwell.planning", "cdk_blackwell.lifecycle.handler")
                    ), (file.name, name)


def test_starts_without_the_cdk_or_torch() -> None:
    code = (
        "import sys; import cdk_blackwell.lifecycle.handler.main; "
        "sys.exit(1 if {'aws_cdk', 'constructs', 'torch'} & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ.copy(), timeout=60)


def test_definition_request_and_permissions_need_no_boto3() -> None:
    """The constructs import them, and boto3 is no dependency of the library."""
    code = (
        "import sys; sys.modules['boto3'] = None; "
        "from cdk_blackwell.lifecycle.handler import definition, request, permissions"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ.copy(), timeout=60)


class _Context:
    aws_request_id = "invocation"
    invoked_function_arn = "arn:aws:lambda:us-west-2:123456789012:function:f"

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def test_answers_a_direct_invocation_from_its_environment_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_TABLE, TABLE)
    monkeypatch.setenv(ENV_TOPIC, TOPIC)
    world.cloudformation("Create")
    monkeypatch.setattr(main, "_services", Services.from_environment)
    for context in (_Context(), None):
        answer = main.handler({"action": "status"}, context)
        assert answer is not None
        assert answer["state"] == "none"


def test_the_service_model_beside_the_code_is_the_one_that_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip
    import json

    import botocore

    source = Path(botocore.__file__).parent / "data/sagemaker/2017-07-24/service-2.json.gz"
    model = json.loads(gzip.decompress(source.read_bytes()))
    model["shapes"]["CreateTrainingJobRequest"]["members"]["BrandNewField"] = {"shape": "String"}
    model["shapes"].setdefault("String", {"type": "string"})
    target = tmp_path / "sagemaker/2017-07-24/service-2.json.gz"
    target.parent.mkdir(parents=True)
    target.write_bytes(gzip.compress(json.dumps(model).encode()))
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    monkeypatch.setenv(ENV_TABLE, TABLE)
    monkeypatch.setenv(ENV_TOPIC, TOPIC)
    jobs = Services.from_environment().jobs
    assert jobs.unknown_field({"TrainingJobName": "x", "BrandNewField": "y"}) is None
    assert jobs.unknown_field({"EvenNewer": "y"}) == "EvenNewer"
