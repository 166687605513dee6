"""Lambda functions, custom resources and EventBridge, with functions of real Python source."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from cdk_blackwell.local.aws import LocalAws

Make = Callable[..., str]

ECHO = """
import os
from pathlib import Path

def handler(event, context):
    print("seen", event.get("x"))
    if event.get("x") == "fail":
        raise ValueError("as asked")
    return {
        "event": event,
        "data": Path(os.environ["DATA"]).read_text(),
        "name": context.function_name,
        "left": context.get_remaining_time_in_millis() > 0,
        "region": os.environ["AWS_REGION"],
    }
"""

CUSTOM = """
import json
import urllib.request

def handler(event, context):
    properties = event["ResourceProperties"]
    answer = {
        "Status": "SUCCESS",
        "PhysicalResourceId": event.get("PhysicalResourceId") or "made-" + properties["Name"],
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "Data": {"Number": properties.get("Number"), "Old": event.get("OldResourceProperties")},
    }
    print("REQUEST", event["RequestType"], answer["PhysicalResourceId"])
    if properties.get("Fail") and event["RequestType"] == "Create":
        answer.update(Status="FAILED", Reason="the run was refused")
    if properties.get("Crash"):
        raise RuntimeError("lost the plot")
    if properties.get("Silent"):
        return
    request = urllib.request.Request(
        event["ResponseURL"], data=json.dumps(answer).encode(), method="PUT"
    )
    urllib.request.urlopen(request)
"""

RECORD = """
import os
import boto3

def handler(event, context):
    boto3.client("sqs").send_message(
        QueueUrl=os.environ["QUEUE"], MessageBody=f'{event["detail"]["n"]} {event["time"]}'
    )
"""


def log_lines(aws: LocalAws, name: str) -> list[str]:
    logs = aws.client("logs")
    try:
        events = logs.filter_log_events(logGroupName=f"/aws/lambda/{name}")["events"]
    except logs.exceptions.ResourceNotFoundException:
        return []
    return [event["message"] for event in events]


def eventually(read: Callable[[], Any]) -> Any:
    limit = time.monotonic() + 60
    while not (found := read()):
        assert time.monotonic() < limit
        time.sleep(0.1)
    return found


def invoke(aws: LocalAws, name: str, event: dict[str, Any], **rest: Any) -> dict[str, Any]:
    answer = aws.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event), **rest)
    text = answer["Payload"].read()
    return {"error": answer.get("FunctionError"), "payload": json.loads(text) if text else None}


def test_a_function_runs_on_its_own_zip(aws: LocalAws, function: Make) -> None:
    function("echo", ECHO, Environment={"Variables": {"DATA": "/var/task/data.txt"}})
    assert invoke(aws, "echo", {"x": 1}) == {
        "error": None,
        "payload": {
            "event": {"x": 1},
            "data": "from the zip",
            "name": "echo",
            "left": True,
            "region": "us-west-2",
        },
    }
    assert "seen 1" in log_lines(aws, "echo")


def test_an_exception_is_the_answer_and_in_the_log(aws: LocalAws, function: Make) -> None:
    function("raises", ECHO)
    answer = invoke(aws, "raises", {"x": "fail"})
    assert answer["error"] == "Unhandled"
    assert answer["payload"]["errorType"] == "ValueError"
    assert answer["payload"]["errorMessage"] == "as asked"
    assert any("Traceback" in line for line in log_lines(aws, "raises"))


def test_a_function_is_killed_at_its_timeout(aws: LocalAws, function: Make) -> None:
    function("slow", "import time\n\ndef handler(event, context):\n    time.sleep(60)\n", Timeout=1)
    answer = invoke(aws, "slow", {})
    assert answer["error"] == "Unhandled"
    assert "Task timed out after 1.00 seconds" in answer["payload"]["errorMessage"]


def test_an_asynchronous_invocation_is_retried(aws: LocalAws, function: Make) -> None:
    function("retried", ECHO)
    invoke(aws, "retried", {"x": "fail"}, InvocationType="Event")
    eventually(lambda: log_lines(aws, "retried").count("seen fail") == 3)


def custom(arn: str, **properties: Any) -> dict[str, Any]:
    return {"Type": "Custom::Thing", "Properties": {"ServiceToken": arn, **properties}}


def requests(aws: LocalAws, name: str) -> list[str]:
    return [line for line in log_lines(aws, name) if line.startswith("REQUEST")]


def test_a_custom_resource_gets_text_and_gives_attributes(
    aws: LocalAws, stacks: Any, function: Make
) -> None:
    arn = function("custom", CUSTOM)
    outputs = {
        "Id": {"Value": {"Ref": "Thing"}},
        "Number": {"Value": {"Fn::GetAtt": ["Thing", "Number"]}},
    }
    stack = stacks.create("custom", {"Thing": custom(arn, Name="a", Number=7)}, Outputs=outputs)
    values = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    assert values == {"Id": "made-a", "Number": "7"}
    stack = stacks.update("custom", {"Thing": custom(arn, Name="a", Number=8)}, Outputs=outputs)
    assert stack["StackStatus"] == "UPDATE_COMPLETE"
    stacks.delete("custom")
    kinds = ["Create", "Update", "Delete"]
    expected = [f"REQUEST {kind} made-a" for kind in kinds]
    # A log is written after the answer that the stack waited for.
    eventually(lambda: requests(aws, "custom") == expected)


def test_a_failed_create_rolls_back_and_deletes_what_it_made(
    aws: LocalAws, stacks: Any, function: Make
) -> None:
    arn = function("custom-fails", CUSTOM)
    stack = stacks.create("custom-fails", {"Thing": custom(arn, Name="b", Fail=True)})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "the run was refused" in stacks.reasons(stack["StackId"])[0]
    expected = ["REQUEST Create made-b", "REQUEST Delete made-b"]
    eventually(lambda: requests(aws, "custom-fails") == expected)


def test_a_crashed_function_is_the_reason(stacks: Any, function: Make) -> None:
    arn = function("custom-crashes", CUSTOM)
    stack = stacks.create("custom-crashes", {"Thing": custom(arn, Name="c", Crash=True)})
    assert "RuntimeError: lost the plot" in stacks.reasons(stack["StackId"])[0]


def test_no_answer_fails_at_the_service_timeout(stacks: Any, function: Make) -> None:
    arn = function("custom-silent", CUSTOM)
    thing = custom(arn, Name="d", Silent=True, ServiceTimeout=1)
    stack = stacks.create("custom-silent", {"Thing": thing})
    assert "did not receive a response" in stacks.reasons(stack["StackId"])[0]


@pytest.mark.parametrize("target", ["lambda", "sqs"])
def test_events_arrive_in_order_with_iso_time(aws: LocalAws, function: Make, target: str) -> None:
    events, sqs = aws.client("events"), aws.client("sqs")
    url = sqs.create_queue(QueueName=f"seen-{target}")["QueueUrl"]
    arn = f"arn:aws:sqs:us-west-2:123456789012:seen-{target}"
    if target == "lambda":
        arn = function("record", RECORD, Environment={"Variables": {"QUEUE": url}})
    pattern = {"source": ["test"], "detail": {"kind": [{"prefix": target}]}}
    events.put_rule(Name=f"rule-{target}", EventPattern=json.dumps(pattern))
    events.put_targets(Rule=f"rule-{target}", Targets=[{"Id": "1", "Arn": arn}])
    for number in range(3):
        for kind in (f"{target}-x", "other"):
            entry = {
                "Source": "test",
                "DetailType": "T",
                "Detail": json.dumps({"n": number, "kind": kind}),
            }
            assert events.put_events(Entries=[entry])["FailedEntryCount"] == 0
    bodies: list[str] = []

    def receive() -> bool:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            bodies.append(message["Body"])
        return len(bodies) == 3

    eventually(receive)
    if target == "sqs":
        bodies = [
            f"{json.loads(body)['detail']['n']} {json.loads(body)['time']}" for body in bodies
        ]
    assert [body[0] for body in bodies] == ["0", "1", "2"]
    assert bodies[0].endswith("Z")
    events.remove_targets(Rule=f"rule-{target}", Ids=["1"])
    events.delete_rule(Name=f"rule-{target}")
