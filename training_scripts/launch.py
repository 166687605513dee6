"""Entrypoint of the training container: from SageMaker's contract to torchrun and back.

Reads which hosts there are and what to run, installs locked packages the image lacks, starts
torchrun, passes SIGTERM on, and turns what the ranks left behind into an exit status and, on
failure, the text SageMaker shows as FailureReason.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from cdk_blackwell.planning.contracts import ENV_PACKAGE_INDEX, Failure, Tier
from cdk_blackwell.planning.metrics import LINE_EVENT, LINE_KEY
from trainer.container import Container
from trainer.errors import classify, describe
from trainer.launching.cluster import (
    EFA_ROOT,
    Cluster,
    LaunchError,
    check_fabric,
    count_efa_devices,
    count_ranks,
    read_cluster,
    wait_for_hosts,
)
from trainer.launching.outcome import judge, lost_others_only
from trainer.launching.shared_failure import SharedFailure
from trainer.launching.supervisor import Launcher
from trainer.launching.torchrun import RENDEZVOUS_PORT, rank_environment, torchrun_command
from trainer.launching.wheels import install_missing_wheels

CODE = Path(__file__).resolve().parent
ENTRY_SCRIPTS: Mapping[Tier, str] = {
    "small": "train_small.py",
    "mid": "train_mid.py",
    "large-sharded": "train_large_sharded.py",
}
PEER_SECONDS = 20.0
"""What a host whose ranks only lost others waits for the cause that another host may tell."""


def launch(
    container: Container, environment: Mapping[str, str], launcher: Launcher
) -> Failure | None:
    """Do everything; None when the training ended as it should."""
    began = time.time()
    try:
        spec = container.read_run_spec()
        ranks, gpus = count_ranks(environment)
        port = read_port(environment)
    except ValueError as error:
        return Failure(kind="user", message=str(error))
    try:
        cluster = read_cluster(container.resource_config)
        install_missing_wheels(CODE, index=environment.get(ENV_PACKAGE_INDEX))
        devices = count_efa_devices(EFA_ROOT)
        fabric = check_fabric(cluster, gpus=gpus, devices=devices, environment=environment)
        if fabric.warning:
            announce("efa_warning", reason=fabric.warning)
        wait_for_hosts(cluster)
    except LaunchError as error:
        return Failure(kind=error.kind, message=str(error))
    announce("launching", hosts=len(cluster.hosts), ranks_per_host=ranks, gpus_per_host=gpus)
    others = share_failures(container, cluster, since=began)
    script = CODE / ENTRY_SCRIPTS[spec.tier]
    status = launcher.run(
        torchrun_command(spec, cluster=cluster, ranks=ranks, script=script, port=port),
        rank_environment(
            environment,
            cluster=cluster,
            ranks=ranks,
            gpus=gpus,
            states=launcher.states,
            tcp=fabric.tcp,
        ),
        ranks=ranks,
        hang_seconds=spec.limits.hang_seconds,
        others=others,
    )
    states = launcher.newest_states()
    failure = launcher.failure or judge(
        status, states, ranks=ranks, stop_requested=launcher.stop_requested
    )
    if failure is None or others is None:
        return failure
    if launcher.failure is None and lost_others_only(states):
        return wait_for_cause(others) or failure
    others.tell(failure, now=time.time())
    return failure


def read_port(environment: Mapping[str, str]) -> int:
    """Where hosts meet; ValueError when ``MASTER_PORT`` is no port."""
    text = environment.get("MASTER_PORT", str(RENDEZVOUS_PORT))
    if not text.isdecimal() or not 0 < int(text) < 2**16:
        raise ValueError(f"MASTER_PORT is {text!r}; a number of 1 to 65535 is needed")
    return int(text)


def share_failures(container: Container, cluster: Cluster, *, since: float) -> SharedFailure | None:
    """Where hosts tell each other why they failed; a lone host has nobody to tell."""
    if not cluster.is_multi_host:
        return None
    return SharedFailure(
        folder=container.checkpoints,
        attempt=container.attempt,
        host=cluster.current,
        since=since,
    )


def wait_for_cause(
    others: SharedFailure,
    *,
    patience_seconds: float = PEER_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> Failure | None:
    """What another host tells within a little while, for a host that has no cause of its own."""
    waited = 0.0
    while (told := others.read()) is None and waited < patience_seconds:
        sleep(1.0)
        waited += 1.0
    return told


def announce(event: str, **details: object) -> None:
    """One event line, as the trainer prints them."""
    print(json.dumps({LINE_KEY: LINE_EVENT, "event": event, **details}), flush=True)


def main(environment: Mapping[str, str]) -> int:
    """Exit status of the container."""
    container = Container.from_environment(environment)
    states = Path(tempfile.mkdtemp(prefix="cdkb-ranks-"))
    launcher = Launcher(states, announce=announce)
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
