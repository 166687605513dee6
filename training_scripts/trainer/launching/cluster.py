"""The hosts of a training job, and what this one has: GPUs and EFA network devices."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdk_blackwell.planning.contracts import (
    ENV_ALLOW_TCP,
    ENV_PROCESSES_PER_HOST,
    FailureClass,
)

DEVICES_ROOT: Final = Path("/dev")
EFA_ROOT: Final = Path("/sys/class/infiniband")
DNS_SECONDS: Final = 600.0
"""Names of other hosts can take minutes to appear."""
DNS_RETRY_SECONDS: Final = 2.0
LOOPBACK: Final = "127.0.0.1"
LOOPBACK_INTERFACE: Final = "lo" if sys.platform == "linux" else "lo0"


class LaunchError(Exception):
    """Nothing was started, and why."""

    def __init__(self, kind: FailureClass, message: str) -> None:
        super().__init__(message)
        self.kind: FailureClass = kind


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """All hosts of the job, sorted; the first one is the meeting point."""

    hosts: tuple[str, ...]
    current: str
    network_interface: str

    @property
    def is_multi_host(self) -> bool:
        """Whether there is any other host."""
        return len(self.hosts) > 1

    @property
    def is_master(self) -> bool:
        """Whether this host is the meeting point."""
        return self.current == self.hosts[0]

    @property
    def master_address(self) -> str:
        """A lone host needs no name service."""
        return self.hosts[0] if self.is_multi_host else LOOPBACK

    @property
    def own_address(self) -> str:
        """How others reach this host."""
        return self.current if self.is_multi_host else LOOPBACK

    @property
    def interface(self) -> str:
        """Network interface for TCP between ranks."""
        return self.network_interface if self.is_multi_host else LOOPBACK_INTERFACE


def read_cluster(resource_config: Path) -> Cluster:
    """Read ``resourceconfig.json``; LaunchError when hosts would wait for one that is not there."""
    try:
        value = json.loads(resource_config.read_text(encoding="utf-8"))
        names, current = value["hosts"], value["current_host"]
        interface = value.get("network_interface_name", "eth0")
        texts = [current, interface, *names] if isinstance(names, list) else []
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise ValueError(f"hosts is {names!r}, current_host {current!r}")
        cluster = Cluster(
            hosts=tuple(sorted(names, key=_natural)), current=current, network_interface=interface
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LaunchError(
            "infrastructure", f"{resource_config} does not tell the hosts of this job: {error!r}"
        ) from error
    twice = sorted({host for host in names if names.count(host) > 1})
    if twice:
        raise LaunchError(
            "infrastructure",
            f"{resource_config} lists {', '.join(twice)} more than once among {len(names)} hosts",
        )
    if cluster.current not in cluster.hosts:
        raise LaunchError(
            "infrastructure",
            f"{resource_config} names current_host {cluster.current!r}, which is not among hosts "
            f"{', '.join(cluster.hosts)}",
        )
    return cluster


def _natural(host: str) -> tuple[tuple[int, str], ...]:
    """``algo-2`` before ``algo-10``."""
    return tuple(
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", host)
    )


def count_gpus(devices: Path = DEVICES_ROOT) -> int:
    """NVIDIA GPUs this container has been given."""
    return sum(1 for path in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))


def count_ranks(environment: Mapping[str, str], devices: Path = DEVICES_ROOT) -> tuple[int, int]:
    """Ranks to start on this host, and its GPUs; one rank per GPU where there are any."""
    gpus = count_gpus(devices)
    if gpus:
        return gpus, gpus
    text = environment.get(ENV_PROCESSES_PER_HOST, "1")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{ENV_PROCESSES_PER_HOST} is {text!r}; a number of 1 or more is needed")
    return int(text), 0


def count_efa_devices(root: Path = EFA_ROOT) -> int:
    """Network devices with the EFA driver; a P6-B200 host has two other ones beside them."""
    if not root.is_dir():
        return 0
    drivers = (
        Path(os.path.realpath(device / "device" / "driver")).name for device in root.iterdir()
    )
    return sum(1 for driver in drivers if driver == "efa")


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """What traffic between hosts will run over."""

    tcp: bool = False
    """No EFA where GPUs of several hosts work together, and the user allowed it."""
    warning: str | None = None


def check_fabric(
    cluster: Cluster, *, gpus: int, devices: int, environment: Mapping[str, str]
) -> Fabric:
    """Refuse a multi-host GPU job that would fall back to TCP, unless ``CDKB_ALLOW_TCP`` is 1.

    A P6-B200 host has 8 EFA devices, one per GPU. Fewer than GPUs are warned of: other instance
    types share them.
    """
    allowed = environment.get(ENV_ALLOW_TCP, "0")
    if allowed not in ("0", "1"):
        raise LaunchError("user", f"{ENV_ALLOW_TCP} is {allowed!r}; 0 or 1 is needed")
    if not cluster.is_multi_host or not gpus:
        return Fabric()
    if not devices and allowed == "1":
        return Fabric(
            tcp=True,
            warning=f"host {cluster.current} has no EFA device; {ENV_ALLOW_TCP} is 1, so traffic "
            f"between {len(cluster.hosts)} hosts runs over TCP, many times slower",
        )
    if not devices:
        raise LaunchError(
            "infrastructure",
            f"host {cluster.current} has no EFA device, so traffic between {len(cluster.hosts)} "
            "hosts would fall back to TCP, many times slower; check the instance type and that "
            "the job's security group allows all traffic to and from itself, or set "
            f"{ENV_ALLOW_TCP}=1 to train over TCP all the same",
        )
    if devices < gpus:
        return Fabric(warning=f"host {cluster.current} has {devices} EFA devices for {gpus} GPUs")
    return Fabric()


def wait_for_hosts(
    cluster: Cluster,
    *,
    stop_requested: Callable[[], bool] = lambda: False,
    resolve: Callable[[str], object] = socket.gethostbyname,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until every host's name resolves, or a stop is asked for."""
    if not cluster.is_multi_host:
        return
    deadline = clock() + DNS_SECONDS
    for host in cluster.hosts:
        while not stop_requested():
            try:
                resolve(host)
                break
            except OSError as error:
                if clock() >= deadline:
                    raise LaunchError(
                        "infrastructure",
                        f"host {host} is still unknown to the name service after "
                        f"{DNS_SECONDS:.0f} s: {error}",
                    ) from error
                sleep(DNS_RETRY_SECONDS)
