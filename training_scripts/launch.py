"""Entrypoint of the training container: from SageMaker's contract to torchrun and back.

Reads which hosts there are and what to run, installs locked packages the image lacks, starts
torchrun, passes SIGTERM on, and turns what the ranks left behind into an exit status and, on
failure, the text SageMaker shows as FailureReason.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from cdk_blackwell.planning.contracts import (
    ENV_PACKAGE_INDEX,
    ENV_RANK_STATE_DIR,
    PLATFORM_ENVIRONMENT,
    Failure,
    Tier,
)
from cdk_blackwell.planning.metrics import LINE_EVENT, LINE_KEY
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.container import Container
from trainer.errors import classify, describe
from trainer.launching.cluster import (
    EFA_ROOT,
    Cluster,
    LaunchError,
    check_efa,
    count_efa_devices,
    count_ranks,
    read_cluster,
    wait_for_hosts,
)
from trainer.launching.outcome import judge
from trainer.launching.wheels import install_missing_wheels
from trainer.rank_state import STOP_MARKER, read_rank_states

CODE = Path(__file__).resolve().parent
ENTRY_SCRIPTS: Mapping[Tier, str] = {
    "small": "train_small.py",
    "mid": "train_mid.py",
    "large-sharded": "train_large_sharded.py",
}
SHUTDOWN_SECONDS = 110
"""What torchrun gives its ranks after SIGTERM; SageMaker kills everything after 120."""
RENDEZVOUS_PORT = 29_500
THREADS_PER_GPU = 8


def rank_environment(
    base: Mapping[str, str], *, cluster: Cluster, ranks: int, gpus: int, states: Path
) -> dict[str, str]:
    """Environment of torchrun and its ranks; variables set by the user win."""
    cores = max(1, (os.cpu_count() or 1) // ranks)
    derived = {
        "MASTER_ADDR": cluster.master_address,
        "OMP_NUM_THREADS": str(min(cores, THREADS_PER_GPU) if gpus else cores),
        "PYTHONUNBUFFERED": "1",
        "GLOO_SOCKET_IFNAME": cluster.interface,
    }
    if gpus:
        derived |= {"NCCL_SOCKET_IFNAME": cluster.interface, **PLATFORM_ENVIRONMENT}
    return {**derived, **base, ENV_RANK_STATE_DIR: str(states)}


def torchrun_command(spec: RunSpec, *, cluster: Cluster, ranks: int, script: Path) -> list[str]:
    """The whole command line of this host's torchrun."""
    port = RENDEZVOUS_PORT if cluster.is_multi_host else 0
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nnodes={len(cluster.hosts)}",
        f"--nproc-per-node={ranks}",
        f"--max-restarts={spec.limits.in_cluster_restarts}",
        f"--shutdown-timeout={SHUTDOWN_SECONDS}",
        "--rdzv-backend=c10d",
        f"--rdzv-id={spec.run_id}",
        f"--rdzv-endpoint={cluster.master_address}:{port}",
        f"--rdzv-conf=is_host={int(cluster.is_master)}",
        f"--local-addr={cluster.own_address}",
        str(script),
    ]


class Launcher:
    """Runs torchrun and passes signals on."""

    def __init__(self, states: Path) -> None:
        self.states = states
        self.stop_requested = False
        self._process: subprocess.Popen[bytes] | None = None

    def install_signal_handlers(self) -> None:
        """SIGTERM comes from SageMaker, SIGINT from a person at a terminal."""
        signal.signal(signal.SIGTERM, self._forward)
        signal.signal(signal.SIGINT, self._forward)

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start torchrun and wait; 0 at once when a stop was asked for before the start."""
        if self.stop_requested:
            return 0
        self._process = subprocess.Popen(command, env=dict(environment))
        if self.stop_requested:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait()

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.stop_requested = True
        # The marker first: it tells the ranks that this SIGTERM asks for a save.
        (self.states / STOP_MARKER).touch()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


def launch(
    container: Container, environment: Mapping[str, str], launcher: Launcher
) -> Failure | None:
    """Do everything; None when the training ended as it should."""
    try:
        spec = container.read_run_spec()
        ranks, gpus = count_ranks(environment)
    except ValueError as error:
        return Failure(kind="user", message=str(error))
    try:
        cluster = read_cluster(container.resource_config)
        install_missing_wheels(CODE, index=environment.get(ENV_PACKAGE_INDEX))
        warning = check_efa(cluster, gpus=gpus, devices=count_efa_devices(EFA_ROOT))
        if warning:
            announce("efa_warning", reason=warning)
        wait_for_hosts(cluster)
    except LaunchError as error:
        return Failure(kind=error.kind, message=str(error))
    announce("launching", hosts=len(cluster.hosts), ranks_per_host=ranks, gpus_per_host=gpus)
    status = launcher.run(
        torchrun_command(
            spec, cluster=cluster, ranks=ranks, script=CODE / ENTRY_SCRIPTS[spec.tier]
        ),
        rank_environment(
            environment, cluster=cluster, ranks=ranks, gpus=gpus, states=launcher.states
        ),
    )
    return judge(
        status,
        read_rank_states(launcher.states),
        ranks=ranks,
        stop_requested=launcher.stop_requested,
    )


def announce(event: str, **details: object) -> None:
    """One event line, as the trainer prints them."""
    print(json.dumps({LINE_KEY: LINE_EVENT, "event": event, **details}), flush=True)


def main(environment: Mapping[str, str]) -> int:
    """Exit status of the container."""
    container = Container.from_environment(environment)
    states = Path(tempfile.mkdtemp(prefix="cdkb-ranks-"))
    launcher = Launcher(states)
    launcher.install_signal_handlers()
    failure: Failure | None
    try:
        failure = launch(container, environment, launcher)
    except Exception as error:
        # A fault of the launcher itself: still leave a reason that the controller can read.
        traceback.print_exc()
        failure = Failure(kind=classify(error), message=f"launcher: {describe(error)}")
    finally:
        shutil.rmtree(states)
    if failure is None:
        return 0
    container.failure_file.parent.mkdir(parents=True, exist_ok=True)
    container.failure_file.write_text(failure.render(), encoding="utf-8")
    print(failure.render(), file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(os.environ))
