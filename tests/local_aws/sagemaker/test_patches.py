"""moto's own parts are replaced while the runtime lives, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest
from moto.sagemaker.models import SageMakerModelBackend
from moto.sagemaker.responses import SageMakerResponse

from cdk_blackwell.local.sagemaker import SageMakerRuntime, install


def make(state_dir: Path, processes_per_host: int = 2) -> SageMakerRuntime:
    return install(
        state_dir=state_dir,
        processes_per_host=processes_per_host,
        emit=lambda region, account, event: None,
        endpoint_url=lambda: "http://localhost:1",
    )


def test_shutdown_gives_back_what_was_replaced(tmp_path: Path) -> None:
    before = (dict(vars(SageMakerResponse)), dict(vars(SageMakerModelBackend)))
    runtime = make(tmp_path)
    assert vars(SageMakerResponse)["describe_training_job"].__module__.endswith("sagemaker.api")
    assert "stop_training_job" in vars(SageMakerResponse)
    runtime.shutdown()
    assert (dict(vars(SageMakerResponse)), dict(vars(SageMakerModelBackend))) == before


def test_another_moto_without_a_replaced_part_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(SageMakerResponse, "list_training_jobs")
    with pytest.raises(RuntimeError, match=r"no SageMakerResponse\.list_training_jobs"):
        make(tmp_path)


def test_no_process_per_host_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="processes_per_host is 0"):
        make(tmp_path, processes_per_host=0)
