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
from dataclasses import dataclass, replace
from pathlib import Path

from cdk_blackwell.planning.contracts import (
    ENV_PACKAGE_INDEX,
    ENV_TRIAL,
    ENV_TRIAL_CANDIDATE,
    RUN_FILE,
    Failure,
    Tier,
)
from cdk_blackwell.planning.metrics import LINE_EVENT, LINE_KEY
from cdk_blackwell.planning.run_spec import RunSpec
from cdk_blackwell.planning.trial import TrialCandidate
from cdk_blackwell.planning.trial_candidates import (
    as_trial_spec,
    measured_steps,
    trial_candidates,
)
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
from trainer.launching.trial import make_report, read_candidate, seconds_for_all, write_report
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
        wait_for_hosts(cluster, stop_requested=lambda: launcher.stop_requested)
    except LaunchError as error:
        return Failure(kind=error.kind, message=str(error))
    announce("launching", hosts=len(cluster.hosts), ranks_per_host=ranks, gpus_per_host=gpus)
    hosts = Hosts(cluster=cluster, ranks=ranks, gpus=gpus, port=port, tcp=fabric.tcp)
    if environment.get(ENV_TRIAL) == "1":
        until = began + seconds_for_all(environment)
        return run_trial(spec, container, environment, launcher, hosts, until=until)
    others = share_failures(container, cluster, since=began)
    return run_ranks(spec, environment, launcher, hosts, others=others)


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """What torchrun is told of this host and the others."""

    cluster: Cluster
    ranks: int
    """Of this host."""
    gpus: int
    port: int
    tcp: bool


def run_ranks(
    spec: RunSpec,
    environment: Mapping[str, str],
    launcher: Launcher,
    hosts: Hosts,
    *,
    others: SharedFailure | None,
    limit_seconds: float | None = None,
) -> Failure | None:
    """One torchrun from start to end; None when it ended as it should."""
    cluster, ranks = hosts.cluster, hosts.ranks
    script = CODE / ENTRY_SCRIPTS[spec.tier]
    status = launcher.run(
        torchrun_command(spec, cluster=cluster, ranks=ranks, script=script, port=hosts.port),
        rank_environment(
            environment,
            cluster=cluster,
            ranks=ranks,
            gpus=hosts.gpus,
            states=launcher.states,
            tcp=hosts.tcp,
        ),
        ranks=ranks,
        hang_seconds=spec.limits.hang_seconds,
        others=others,
        limit_seconds=limit_seconds,
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


def run_trial(
    spec: RunSpec,
    container: Container,
    environment: Mapping[str, str],
    launcher: Launcher,
    hosts: Hosts,
    *,
    until: float,
) -> Failure | None:
    """Each candidate by a torchrun of its own; what becomes of it stands in the report alone.

    ``until``: seconds since the epoch. Those that are still to come share what is left.
    """
    candidates = trial_candidates(spec)
    steps = measured_steps(spec, len(candidates), seconds=until - time.time())
    tried: list[TrialCandidate] = []
    states = launcher.states
    for index, (layout, recipe) in enumerate(candidates):
        folder = states / f"candidate-{index}"
        folder.mkdir()
        short = as_trial_spec(spec, layout, recipe, run_id=f"trial-{index}", steps=steps)
        (folder / RUN_FILE).write_text(short.to_json(), encoding="utf-8")
        (folder / "states").mkdir()
        launcher.begin_anew(folder / "states")
        announce("trial_candidate", index=index, of=len(candidates), steps=steps)
        since = time.time()
        # Another file and port for each: what an earlier candidate left there is no concern.
        others = share_failures(replace(container, attempt=index + 1), hosts.cluster, since=since)
        failure = run_ranks(
            short,
            {**environment, ENV_TRIAL_CANDIDATE: str(folder)},
            launcher,
            replace(hosts, port=hosts.port + index),
            others=others,
            limit_seconds=max(1.0, until - time.time()) / (len(candidates) - index),
        )
        if not launcher.stop_requested:
            hung = launcher.failure is not None and launcher.failure.kind == "infrastructure"
            vocabulary, ranks = spec.model.vocab_size, layout.gpus
            tried.append(
                read_candidate(
                    *(folder, layout, recipe, failure),
                    ranks=ranks,
                    vocabulary=vocabulary,
                    hung=hung,
                )
            )
        if hosts.cluster.is_master:  # rank 0, which measures, is there
            report = make_report(spec, tried, planned=len(candidates))
            write_report(report, container, announce)
            announce("trial_report", winner=report.winner, reason=report.reason)
        if launcher.stop_requested:
            break
    # A trial in which nothing worked has still done its task: the report says so.
    return None


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
