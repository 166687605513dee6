"""How torchrun is started on one host: its command line and its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cdk_blackwell.planning.contracts import ENV_RANK_STATE_DIR, PLATFORM_ENVIRONMENT
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.launching.cluster import Cluster

SHUTDOWN_SECONDS: Final = 110
"""What torchrun gives its ranks after SIGTERM; SageMaker kills everything after 120."""
RENDEZVOUS_PORT: Final = 29_500
"""Where hosts meet on the first one; ``MASTER_PORT`` in the job's environment moves it."""
MEETING_SECONDS: Final = 1_200
"""How long hosts wait for each other: images, names and packages arrive at their own pace."""
STORE_SECONDS: Final = 600
"""How long a host tries to reach the first one's store, which may still be installing packages;
torchrun's own 60 s lose early hosts."""
THREADS_PER_GPU: Final = 8
RESTART_ENVIRONMENT: Final[Mapping[str, str]] = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Every start of the workers gets a store of its own. In the agents' shared one restarted ranks
find addresses of ranks that are gone (pytorch/pytorch#135712; seen with torch 2.13)."""
TCP_ENVIRONMENT: Final[Mapping[str, str]] = {"NCCL_NET": "Socket"}
"""Where TCP was asked for: NCCL's own sockets, without a search for EFA that would fail."""


def rank_environment(
    base: Mapping[str, str],
    *,
    cluster: Cluster,
    ranks: int,
    gpus: int,
    states: Path,
    tcp: bool = False,
) -> dict[str, str]:
    """Environment of torchrun and its ranks; variables set by the user win.

    ``tcp``: hosts exchange over TCP because the user allowed it and EFA is not there.
    """
    cores = max(1, (os.cpu_count() or 1) // ranks)
    derived = {
        "MASTER_ADDR": cluster.master_address,
        "OMP_NUM_THREADS": str(min(cores, THREADS_PER_GPU) if gpus else cores),
        "PYTHONUNBUFFERED": "1",
        "GLOO_SOCKET_IFNAME": cluster.interface,
        **RESTART_ENVIRONMENT,
    }
    if gpus:
        derived |= {"NCCL_SOCKET_IFNAME": cluster.interface, **PLATFORM_ENVIRONMENT}
    if tcp:
        derived |= TCP_ENVIRONMENT
    return {**derived, **base, ENV_RANK_STATE_DIR: str(states)}


def torchrun_command(
    spec: RunSpec, *, cluster: Cluster, ranks: int, script: Path, port: int = RENDEZVOUS_PORT
) -> list[str]:
    """The whole command line of this host's torchrun.

    Each host's agent counts only the failures of its own workers against ``--max-restarts``; a
    restart that another host began costs it nothing. So the flag alone bounds neither the cluster's
    restarts nor useless ones: the launcher's watch does.
    """
    meeting = {
        "is_host": int(cluster.is_master),
        "join_timeout": MEETING_SECONDS,
        "read_timeout": STORE_SECONDS,
    }
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nnodes={len(cluster.hosts)}",
        f"--nproc-per-node={ranks}",
        f"--max-restarts={spec.limits.in_cluster_restarts}",
        f"--shutdown-timeout={SHUTDOWN_SECONDS}",
        "--rdzv-backend=c10d",
        f"--rdzv-id={spec.run_id}",
        f"--rdzv-endpoint={cluster.master_address}:{port if cluster.is_multi_host else 0}",
        f"--rdzv-conf={','.join(f'{key}={value}' for key, value in meeting.items())}",
        f"--local-addr={cluster.own_address}",
        str(script),
    ]
