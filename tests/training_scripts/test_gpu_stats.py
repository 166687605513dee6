"""NVML against a driver of our own: numbers, errors, and nothing that stops training."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.gpu_stats import GpuWatch


class Driver:
    """The part of pynvml that is used, with scripted answers."""

    class NVMLError(Exception):
        pass

    class NVMLError_Timeout(NVMLError):  # noqa: N801, N818 - pynvml's own name
        pass

    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = NVML_VOLATILE_ECC = 0
    NVML_CLOCK_MEM = 2
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    nvmlEventTypeXidCriticalError = 8  # noqa: N815

    def __init__(self, *, broken: frozenset[str] = frozenset(), xids: tuple[int, ...] = ()) -> None:
        self.broken, self.xids = broken, list(xids)

    def __getattr__(self, name: str) -> Any:
        if name in self.broken:
            return self.fail
        answers = {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=160 * 1024**3),
            "nvmlDeviceGetPowerUsage": 987_000,
            "nvmlDeviceGetTemperature": 61,
            "nvmlDeviceGetClockInfo": 1965,
            "nvmlDeviceGetTotalEccErrors": 2,
        }
        return lambda *_: answers.get(name, object())

    def fail(self, *_: Any) -> None:
        raise self.NVMLError("Not Supported")

    def nvmlEventSetWait_v2(self, *_: Any) -> Any:
        if not self.xids:
            raise self.NVMLError_Timeout
        return SimpleNamespace(eventData=self.xids.pop(0))


def watch(driver: Driver, last: str, *, prints: bool = True) -> list[tuple[str, dict[str, Any]]]:
    """What is told until the event named ``last``."""
    told: list[tuple[str, dict[str, Any]]] = []
    done = threading.Event()

    def tell(name: str, **details: Any) -> None:
        told.append((name, details))
        if name == last:
            done.set()

    watching = GpuWatch(
        driver, bus_id="0:1", tell=tell, prints_numbers=prints, interval_seconds=0.01
    )
    assert done.wait(10)
    watching.close()
    return told


def test_numbers_and_errors_are_told() -> None:
    told = watch(Driver(xids=(79,)), "gpu_xid")
    numbers = dict(told)["gpu"]
    assert numbers["power_watts"] == 987.0
    assert numbers["memory_used_gib"] == 160.0
    assert numbers["utilization_percent"] == 97
    assert [details for name, details in told if name == "gpu_memory_errors"] == [
        {"uncorrected": 2}
    ], "told once, not with every sample"
    assert dict(told)["gpu_xid"] == {"xid": 79}


def test_other_ranks_tell_errors_only() -> None:
    told = watch(Driver(xids=(48, 79)), "gpu_xid", prints=False)
    assert {name for name, _ in told} == {"gpu_memory_errors", "gpu_xid"}


def test_a_number_that_a_gpu_lacks_is_left_out() -> None:
    told = watch(Driver(broken=frozenset({"nvmlDeviceGetTotalEccErrors"})), "gpu")
    assert "uncorrected_ecc_errors" not in told[0][1]
    assert told[0][1]["sm_clock_mhz"] == 1965


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetHandleByPciBusId"])
def test_a_machine_without_nvml_says_so_and_goes_on(call: str) -> None:
    told = watch(Driver(broken=frozenset({call})), "gpu_watch_off")
    assert told == [("gpu_watch_off", {"reason": "Not Supported"})]
