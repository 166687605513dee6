"""A moto server with the embedded SageMaker in it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from cdk_blackwell.local.sagemaker import Timing, install
from tests.local_aws.sagemaker.embedded import BUCKET, REGION, Sagemaker


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    # One server for all tests of a module; each test has its own state below.
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.delenv("AWS_PROFILE", raising=False)
        moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        moto.start()
        host, port = moto.get_host_and_port()
        yield f"http://{host}:{port}"
        moto.stop()


@pytest.fixture
def sagemaker(server: str, tmp_path: Path) -> Iterator[Sagemaker]:
    embedded = Sagemaker(endpoint_url=server, state_dir=tmp_path)
    embedded.runtime = install(
        state_dir=tmp_path,
        processes_per_host=2,
        emit=embedded.emit,
        endpoint_url=lambda: server,
        timing=Timing(stop_grace_seconds=2.0, sync_seconds=0.2, poll_seconds=0.05),
    )
    embedded.s3.create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    yield embedded
    embedded.runtime.shutdown()
    reset = urllib.request.Request(f"{server}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset).close()
