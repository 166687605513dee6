"""The embedded AWS as a process: ``python -m cdk_blackwell.local.server --state-dir DIR``.

Prints one line of JSON when it is ready and serves until SIGTERM, SIGINT or the end of its parent.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

EXIT_BAD_INPUT: Final = 2
HOST: Final = "127.0.0.1"
PARENT_CHECK_SECONDS: Final = 1.0


class StartError(Exception):
    """The server cannot start; the text is for the user."""


@dataclass(kw_only=True)
class EmbeddedAws:
    """A running server."""

    endpoint: str
    serve: Callable[[], None]
    """Blocks until ``stop``."""
    stop: Callable[[], None]


def start(
    *, port: int, state_dir: Path, processes_per_host: int, sagemaker: bool = True
) -> EmbeddedAws:
    """Bind, patch moto, and be ready to serve; StartError when that is not possible."""
    # Before moto is imported: the managed policies that CDK's roles name.
    os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
    try:
        import moto.moto_server.werkzeug_app  # noqa: F401
        from werkzeug.serving import make_server
    except ImportError as error:
        raise StartError(
            f"the embedded AWS needs moto ({error.name} is missing): install cdk-blackwell[local]"
        ) from None

    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )

    from cdk_blackwell.local import events, lambda_runtime
    from cdk_blackwell.local.cloudformation.api import CloudFormationApi
    from cdk_blackwell.local.cloudformation.custom_resources import CustomResource
    from cdk_blackwell.local.cloudformation.engine import Engine
    from cdk_blackwell.local.cloudformation.stacks import Store
    from cdk_blackwell.local.patches import MotoMismatchError, check_moto, patch_responses
    from cdk_blackwell.local.resources import resource_types
    from cdk_blackwell.local.world import ACCOUNT, World

    try:
        check_moto()
    except MotoMismatchError as error:
        raise StartError(str(error)) from None
    _check_state_dir(state_dir)

    class QuietHandler(MotoRequestHandler):  # type: ignore[misc]
        """One line for each request would drown what matters."""

        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            return

    application = _with_answers(DomainDispatcherApplication(create_backend_app))
    _check_port(port)
    server = make_server(HOST, port, application, threaded=True, request_handler=QuietHandler)
    world = World(endpoint=f"http://localhost:{server.server_port}", state_dir=state_dir.resolve())
    # moto builds URLs of queues and the like with it.
    os.environ["MOTO_PORT"] = str(server.server_port)

    runtime = lambda_runtime.install(world)
    bus = events.install(world)
    patch_responses()
    types = {
        **resource_types(),
        "AWS::CloudFormation::CustomResource": CustomResource(),
    }
    engines: dict[str, tuple[Store, Engine]] = {}

    def engine_for(region: str) -> tuple[Store, Engine]:
        if region not in engines:
            store = Store(ACCOUNT, region)
            engines[region] = (store, Engine(world, store, types))
        return engines[region]

    CloudFormationApi.world = world
    CloudFormationApi.engine_for = staticmethod(engine_for)

    on_stop: list[Callable[[], Any]] = [bus.stop, runtime.end_all]
    if sagemaker:
        from cdk_blackwell.local.sagemaker.runtime import install

        jobs = install(
            state_dir=state_dir,
            processes_per_host=processes_per_host,
            emit=events.publish_event,
            endpoint_url=lambda: world.endpoint,
        )
        on_stop.insert(0, jobs.shutdown)
    bus.start_schedules()

    def stop() -> None:
        for end in on_stop:
            end()
        server.shutdown()
        server.server_close()

    return EmbeddedAws(endpoint=world.endpoint, serve=server.serve_forever, stop=stop)


def _with_answers(application: Any) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    """Custom resources answer on this server too, on a path that is no service's."""
    from cdk_blackwell.local.cloudformation.custom_resources import RESPONSE_PATH, receive_answer

    def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if not path.startswith(RESPONSE_PATH) or environ["REQUEST_METHOD"] != "PUT":
            return application(environ, start_response)  # type: ignore[no-any-return]
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status = receive_answer(path.removeprefix(RESPONSE_PATH), body)
        reason = {200: "OK", 400: "Bad Request", 403: "Forbidden"}[status]
        start_response(f"{status} {reason}", [("Content-Length", "0")])
        return [b""]

    return serve


def _check_state_dir(state_dir: Path) -> None:
    """Create it, and find a full disk before a training job does."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        probe = state_dir / ".probe"
        probe.write_bytes(bytes(1 << 20))
        probe.unlink()
    except OSError as error:
        what = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise StartError(
            f"cannot write to {state_dir}: {what}; free some space or give another --state-dir"
        ) from None


def _check_port(port: int) -> None:
    """werkzeug ends the process by itself when the port is taken."""
    import socket

    if port == 0:
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise StartError(
                f"port {port} cannot be used ({error}): give another one, or 0 for any free port"
            ) from None


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cdk_blackwell.local.server")
    parser.add_argument("--port", type=int, default=0, help="0 (default) takes a free one")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--processes-per-host", type=int, default=2)
    given = parser.parse_args(argv)
    parent = os.getppid()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        aws = start(
            port=given.port,
            state_dir=given.state_dir,
            processes_per_host=given.processes_per_host,
        )
    except (StartError, ValueError) as error:
        print(f"embedded AWS: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    threading.Thread(target=aws.serve, name="http", daemon=True).start()
    print(json.dumps({"endpoint": aws.endpoint, "pid": os.getpid()}), flush=True)
    while not ended.wait(PARENT_CHECK_SECONDS):
        if os.getppid() != parent:
            break
    aws.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
