"""The answer's size and its delivery over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from cdk_blackwell.lifecycle.handler.answer import ANSWER_BYTES, Answer, put, render, send
from cdk_blackwell.lifecycle.handler.clock import Clock
from tests.lifecycle.fakes import FakeTime

EVENT = {"StackId": "stack", "RequestId": "request", "LogicalResourceId": "logical"}


def test_a_short_answer_is_complete() -> None:
    answer = Answer(status="SUCCESS", reason="good", data={"JobName": "job"})
    assert json.loads(render(answer, EVENT, "id")) == {
        "Status": "SUCCESS",
        "Reason": "good",
        "PhysicalResourceId": "id",
        "StackId": "stack",
        "RequestId": "request",
        "LogicalResourceId": "logical",
        "Data": {"JobName": "job"},
    }


@pytest.mark.parametrize("letter", ["x", "é", "\n", "😀"])
@pytest.mark.parametrize("data", [{}, {"Message": "m" * 5000}])
def test_a_long_reason_is_cut_to_cloudformations_limit(letter: str, data: dict[str, str]) -> None:
    reason = "first words " + letter * 10_000
    body = render(Answer(status="FAILED", reason=reason, data=data), EVENT, "i" * 200)
    assert len(body) <= ANSWER_BYTES
    read = json.loads(body)
    assert read["Reason"].startswith("first words " + letter * 200)
    assert read["Reason"].endswith("...")
    assert read["PhysicalResourceId"] == "i" * 200


class _Bucket(BaseHTTPRequestHandler):
    replies: ClassVar[list[int]] = []
    taken: ClassVar[list[tuple[str, bytes]]] = []

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((self.headers["Content-Type"], body))
        self.send_response(self.replies.pop(0) if self.replies else 200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def bucket() -> Iterator[str]:
    _Bucket.replies, _Bucket.taken = [], []
    server = HTTPServer(("localhost", 0), _Bucket)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://localhost:{server.server_port}/answer?signature=x"
    server.shutdown()
    thread.join()
    server.server_close()


def _clock(time: FakeTime) -> Clock:
    return Clock(now=time.now, sleep=time.sleep)


def test_is_put_with_the_empty_content_type_that_was_signed(bucket: str) -> None:
    put(bucket, b"{}")
    assert _Bucket.taken == [("", b"{}")]


def test_a_server_error_is_tried_again(bucket: str) -> None:
    time = FakeTime()
    _Bucket.replies = [503, 500]
    send(bucket, b"{}", clock=_clock(time))
    assert len(_Bucket.taken) == 3
    assert time.slept > 0


def test_a_refused_signature_is_not_tried_again(bucket: str) -> None:
    _Bucket.replies = [403]
    with pytest.raises(OSError, match="403"):
        send(bucket, b"{}", clock=_clock(FakeTime()))
    assert len(_Bucket.taken) == 1


def test_only_http_addresses_are_written_to() -> None:
    with pytest.raises(ValueError, match="not an HTTP address"):
        put("file:///tmp/x", b"{}")


@pytest.mark.parametrize(
    "broken",
    [
        http.client.BadStatusLine("garbage"),
        http.client.IncompleteRead(b""),
        ConnectionResetError(),
        TimeoutError(),
        urllib.error.URLError("no route"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_breaks_on_the_way_is_tried_again(broken: Exception) -> None:
    tries: list[str] = []

    def once(url: str, body: bytes) -> None:
        tries.append(url)
        if len(tries) < 3:
            raise broken

    send("https://answer", b"{}", clock=_clock(FakeTime()), send_once=once)
    assert len(tries) == 3
