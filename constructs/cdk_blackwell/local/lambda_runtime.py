"""Runs Lambda functions: each invocation is a Python process on the function's own zip.

moto keeps functions and their code; it would run them in Docker. Here the zip is unpacked once per
checksum, and ``/var/task`` in environment values means that folder. Asynchronous invocations are
retried as Lambda does, only sooner, and end in the dead-letter queue.
"""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.local.world import ACCESS_KEY, SECRET_KEY, World

RETRIES: Final = 2
RETRY_SECONDS: Final = 1.0
"""Lambda waits one minute, then two."""
TASK_ROOT: Final = "/var/task"
BOOT: Final = Path(__file__).with_name("lambda_boot.py")


@dataclass(frozen=True, kw_only=True)
class FunctionSettings:
    """What a function was configured with and moto does not keep."""

    log_group: str | None
    dead_letter_arn: str | None


FUNCTION_SETTINGS: Final[dict[str, FunctionSettings]] = {}
"""By function ARN."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an invocation gave."""

    payload: str
    """JSON: the result, or the error object."""
    errored: bool
    log: str

    @property
    def message(self) -> str:
        """The error in one line."""
        try:
            error = json.loads(self.payload)
            return f"{error.get('errorType', 'Error')}: {error['errorMessage']}"
        except (ValueError, KeyError, AttributeError, TypeError):
            return self.payload


class LambdaRuntime:
    """Executes functions for one embedded AWS; ``end_all`` stops what still runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._folder = world.state_dir / "lambda"
        self._unpack_lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._running_lock = threading.Lock()

    def run(self, function: Any, event: str) -> Outcome:
        """Invoke moto's ``LambdaFunction`` with an event (JSON text) and wait for its end."""
        request_id = str(uuid.uuid4())
        if not str(function.run_time).startswith("python"):
            outcome = _error(
                "Runtime.NotSupported",
                f"the embedded AWS runs Python functions only, not {function.run_time}",
            )
        else:
            outcome = self._execute(function, event, request_id)
        self._save_log(function, outcome.log, request_id)
        return outcome

    def run_asynchronously(
        self,
        function: Any,
        event: str,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        """Invoke in a thread, with retries; then the dead-letter queue and ``on_failure``."""

        def work() -> None:
            attempts = 1 + _maximum_retries(function)
            for attempt in range(attempts):
                outcome = self.run(function, event)
                if not outcome.errored:
                    return
                if attempt + 1 < attempts:
                    time.sleep(RETRY_SECONDS * (attempt + 1))
            self._bury(function, event, outcome)
            if on_failure is not None:
                on_failure(outcome.message)

        threading.Thread(target=work, name=f"lambda-{function.function_name}", daemon=True).start()

    def end_all(self) -> None:
        """Kill every running invocation."""
        with self._running_lock:
            for process in self._running:
                _kill(process)

    # --- One invocation --------------------------------------------------------------------------

    def _execute(self, function: Any, event: str, request_id: str) -> Outcome:
        try:
            task = self._unpack(function)
        except (OSError, zipfile.BadZipFile) as error:
            return _error("Runtime.BadCode", f"the function's code cannot be unpacked: {error}")
        timeout = int(function.timeout or 3)
        with tempfile.TemporaryDirectory(prefix="lambda-", dir=self._folder) as scratch:
            answer = Path(scratch) / "answer.json"
            order = {
                "handler": function.handler,
                "task": str(task),
                "answer": str(answer),
                "event": json.loads(event or "null"),
                "context": {
                    "function_name": function.function_name,
                    "function_version": str(function.version),
                    "invoked_function_arn": function.function_arn,
                    "memory_limit_in_mb": str(function.memory_size),
                    "aws_request_id": request_id,
                    "log_group_name": _log_group(function),
                    "log_stream_name": _log_stream(request_id),
                },
                "timeout": timeout,
            }
            process = subprocess.Popen(
                [sys.executable, str(BOOT)],
                cwd=task,
                env=self._environment(function, task, scratch),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            with self._running_lock:
                self._running.add(process)
            try:
                log, _ = process.communicate(json.dumps(order), timeout=timeout)
            except subprocess.TimeoutExpired:
                _kill(process)
                log, _ = process.communicate()
                message = f"{request_id} Task timed out after {timeout:.2f} seconds"
                return _error("Sandbox.Timedout", message, log + message + "\n")
            finally:
                with self._running_lock:
                    self._running.discard(process)
            if not answer.exists():
                message = f"RequestId: {request_id} Error: Runtime exited with status"
                return _error("Runtime.ExitError", f"{message} {process.returncode}", log)
            result = json.loads(answer.read_text())
        return Outcome(payload=json.dumps(result["payload"]), errored=result["errored"], log=log)

    def _unpack(self, function: Any) -> Path:
        name = str(function.code_sha_256).replace("/", "_").replace("+", "-").rstrip("=")
        folder = self._folder / "code" / name
        with self._unpack_lock:
            if not folder.exists():
                folder.parent.mkdir(parents=True, exist_ok=True)
                partial = Path(tempfile.mkdtemp(dir=folder.parent))
                with zipfile.ZipFile(io.BytesIO(function.code_bytes)) as archive:
                    archive.extractall(partial)
                partial.rename(folder)
        return folder

    def _environment(self, function: Any, task: Path, scratch: str) -> dict[str, str]:
        variables: Mapping[str, str] = function.environment_vars or {}
        region = function.region
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": scratch,
            "TMPDIR": scratch,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **{key: value.replace(TASK_ROOT, str(task)) for key, value in variables.items()},
            "LAMBDA_TASK_ROOT": str(task),
            "AWS_LAMBDA_FUNCTION_NAME": function.function_name,
            "AWS_LAMBDA_FUNCTION_VERSION": str(function.version),
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_size),
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_ENDPOINT_URL": self._world.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _save_log(self, function: Any, log: str, request_id: str) -> None:
        """Write to CloudWatch Logs; a log group that is deleted already loses it, as on AWS."""
        logs = self._world.client("logs", function.region)
        group, stream = _log_group(function), _log_stream(request_id)
        lines = [f"START RequestId: {request_id}", *log.splitlines(), f"END {request_id}"]
        moment = int(time.time() * 1000)
        try:
            if group.startswith("/aws/lambda/"):
                with suppress(logs.exceptions.ResourceAlreadyExistsException):
                    logs.create_log_group(logGroupName=group)
            logs.create_log_stream(logGroupName=group, logStreamName=stream)
            logs.put_log_events(
                logGroupName=group,
                logStreamName=stream,
                logEvents=[{"timestamp": moment, "message": line or " "} for line in lines],
            )
        except logs.exceptions.ResourceNotFoundException:
            return

    def _bury(self, function: Any, event: str, outcome: Outcome) -> None:
        settings = FUNCTION_SETTINGS.get(function.function_arn)
        if settings is None or not settings.dead_letter_arn:
            return
        service, region, _, name = settings.dead_letter_arn.split(":")[2:6]
        client = self._world.client(service, region)
        attributes = {
            "ErrorMessage": {"DataType": "String", "StringValue": outcome.message[:1024] or "?"}
        }
        try:
            if service == "sqs":
                url = client.get_queue_url(QueueName=name)["QueueUrl"]
                client.send_message(QueueUrl=url, MessageBody=event, MessageAttributes=attributes)
            else:
                client.publish(
                    TopicArn=settings.dead_letter_arn, Message=event, MessageAttributes=attributes
                )
        except ClientError as error:
            print(f"dead-letter target {settings.dead_letter_arn}: {error}", file=sys.stderr)


def _maximum_retries(function: Any) -> int:
    configured = function.event_invoke_config
    if not configured:
        return RETRIES
    return int(configured[-1].config.get("MaximumRetryAttempts", RETRIES))


def _log_group(function: Any) -> str:
    settings = FUNCTION_SETTINGS.get(function.function_arn)
    return (settings and settings.log_group) or f"/aws/lambda/{function.function_name}"


def _log_stream(request_id: str) -> str:
    return time.strftime("%Y/%m/%d/[$LATEST]") + request_id.replace("-", "")


def _error(kind: str, message: str, log: str = "") -> Outcome:
    payload = json.dumps({"errorType": kind, "errorMessage": message})
    return Outcome(payload=payload, errored=True, log=log or message + "\n")


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


# --- Into moto -----------------------------------------------------------------------------------

_current: LambdaRuntime | None = None


def current_runtime() -> LambdaRuntime:
    """The installed runtime."""
    if _current is None:
        raise RuntimeError("the Lambda runtime is not installed")
    return _current


def install(world: World) -> LambdaRuntime:
    """Make moto's functions run here."""
    from moto.awslambda.models import LambdaFunction

    global _current
    _current = LambdaRuntime(world)
    (world.state_dir / "lambda").mkdir(parents=True, exist_ok=True)
    LambdaFunction._invoke_lambda = _invoke_lambda
    LambdaFunction.invoke = _invoke
    return _current


def _text(event: Any) -> str:
    return event if isinstance(event, str) else json.dumps(event)


def _invoke_lambda(function: Any, event: Any = None) -> tuple[str, bool, str]:
    """Replaces ``LambdaFunction._invoke_lambda``: event sources that wait for the result."""
    outcome = current_runtime().run(function, _text({} if event is None else event))
    return outcome.payload, outcome.errored, outcome.log


def _invoke(function: Any, body: Any, request_headers: Any, response_headers: Any) -> str | bytes:
    """Replaces ``LambdaFunction.invoke``: the Invoke API and moto's own event sources."""
    event = (body.decode() if isinstance(body, bytes) else body) or "{}"
    kind = request_headers.get("x-amz-invocation-type", "RequestResponse")
    if kind == "Event":
        current_runtime().run_asynchronously(function, event)
        return ""
    outcome = current_runtime().run(function, event)
    if outcome.errored:
        response_headers["x-amz-function-error"] = "Unhandled"
    tail = base64.b64encode(outcome.log.encode()[-4096:]).decode()
    response_headers["x-amz-log-result"] = tail
    return outcome.payload.encode()


def invoke_asynchronously(
    world: World, *, function: str, event: Mapping[str, Any], on_failure: Callable[[str], None]
) -> None:
    """Invoke by ARN, as other services do; ``on_failure`` gets the error after the last retry."""
    region = function.split(":")[3]
    current_runtime().run_asynchronously(
        find_function(world.account, region, function), json.dumps(event), on_failure
    )


def find_function(account: str, region: str, function: str) -> Any:
    """moto's ``LambdaFunction`` by name or ARN; its ResourceNotFound error when there is none."""
    from moto.awslambda.models import lambda_backends

    return lambda_backends[account][region].get_function(function)
