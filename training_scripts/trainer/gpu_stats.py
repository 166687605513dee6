"""What NVIDIA's driver says about a rank's GPU, sampled by a thread that never holds training up.

Rank 0 prints its GPU's numbers; every rank tells of memory errors that could not be corrected and
of XID errors (NVIDIA's numbers for what the driver met) as they come. A machine without NVML, or a
number that a GPU does not have, is no failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

import torch

from trainer.metrics import Reporter
from trainer.parallel import World

INTERVAL_SECONDS: Final = 30.0
READERS: Final[Mapping[str, Callable[[Any, Any], float]]] = {
    "utilization_percent": lambda n, gpu: n.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory_used_gib": lambda n, gpu: round(n.nvmlDeviceGetMemoryInfo(gpu).used / 1024**3, 2),
    "power_watts": lambda n, gpu: n.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "temperature_celsius": lambda n, gpu: n.nvmlDeviceGetTemperature(gpu, n.NVML_TEMPERATURE_GPU),
    "sm_clock_mhz": lambda n, gpu: n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_SM),
    "memory_clock_mhz": lambda n, gpu: n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_MEM),
    "uncorrected_ecc_errors": lambda n, gpu: n.nvmlDeviceGetTotalEccErrors(
        gpu, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, n.NVML_VOLATILE_ECC
    ),
}
ECC: Final = "uncorrected_ecc_errors"


class GpuWatch:
    """Samples one GPU until it is closed."""

    def __init__(
        self,
        nvml: ModuleType | Any,
        *,
        bus_id: str,
        tell: Callable[..., None],
        prints_numbers: bool,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        """``bus_id`` names the GPU whatever CUDA_VISIBLE_DEVICES says; ``tell`` prints an event."""
        self._nvml, self._bus_id, self._tell = nvml, bus_id, tell
        self._prints, self._interval = prints_numbers, interval_seconds
        self._ecc = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpu-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; a driver that hangs is not waited for."""
        self._closing.set()
        self._thread.join(timeout=1.0)

    def _watch(self) -> None:
        try:
            self._nvml.nvmlInit()
            gpu = self._nvml.nvmlDeviceGetHandleByPciBusId(self._bus_id)
            events = self._register(gpu)
            while not self._closing.wait(self._interval):
                self._sample(gpu)
                self._read_xids(events)
        except self._nvml.NVMLError as error:
            self._tell("gpu_watch_off", reason=str(error))

    def _sample(self, gpu: Any) -> None:
        numbers = {}
        for name, read in READERS.items():
            try:
                numbers[name] = read(self._nvml, gpu)
            except self._nvml.NVMLError:
                # Not every GPU has every number: it is left out of the line.
                continue
        if self._prints:
            self._tell("gpu", **numbers)
        errors = numbers.get(ECC, self._ecc)
        if errors > self._ecc:
            self._tell("gpu_memory_errors", uncorrected=errors)
        self._ecc = errors

    def _register(self, gpu: Any) -> Any:
        try:
            events = self._nvml.nvmlEventSetCreate()
            self._nvml.nvmlDeviceRegisterEvents(
                gpu, self._nvml.nvmlEventTypeXidCriticalError, events
            )
        except self._nvml.NVMLError as error:
            self._tell("xid_watch_off", reason=str(error))
            return None
        return events

    def _read_xids(self, events: Any) -> None:
        while events is not None:
            try:
                event = self._nvml.nvmlEventSetWait_v2(events, 0)
            except self._nvml.NVMLError_Timeout:
                return
            self._tell("gpu_xid", xid=int(event.eventData))


def watch_gpu(
    world: World, report: Reporter, *, interval_seconds: float = INTERVAL_SECONDS
) -> GpuWatch | None:
    """Begin to watch this rank's GPU; None on CPU and where NVML's bindings are missing."""
    if not world.has_gpu:
        return None
    try:
        import pynvml
    except ImportError as error:
        report.event("gpu_watch_off", reason=f"NVML's bindings cannot be imported: {error}")
        return None
    place: Any = torch.cuda.get_device_properties(world.device)
    return GpuWatch(
        pynvml,
        bus_id=f"{place.pci_domain_id:08X}:{place.pci_bus_id:02X}:{place.pci_device_id:02X}.0",
        tell=report.event_of_rank,
        prints_numbers=world.is_first,
        interval_seconds=interval_seconds,
    )
