"""The container's entrypoint: what it starts, and what it says when things end badly."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import launch
from cdk_blackwell.planning.contracts import Failure, Tier
from tests.training_scripts.imports import SCRIPTS, imported_of
from tests.training_scripts.tiny import tiny_spec, write_container
from trainer.launching.cluster import (
    Cluster,
    Fabric,
    LaunchError,
    check_fabric,
    count_efa_devices,
    count_gpus,
    count_ranks,
    read_cluster,
    wait_for_hosts,
)
from trainer.launching.supervisor import Launcher
from trainer.launching.torchrun import rank_environment, torchrun_command
from trainer.rank_state import RankReporter


def cluster(count: int = 1, current: int = 1) -> Cluster:
    hosts = tuple(f"algo-{i + 1}" for i in range(count))
    return Cluster(hosts=hosts, current=f"algo-{current}", network_interface="eth0")


# --- Hosts ---------------------------------------------------------------------------------------


def test_hosts_are_sorted_as_people_count(tmp_path: Path) -> None:
    hosts = tuple(f"algo-{i}" for i in (10, 2, 1))
    write_container(tmp_path, tiny_spec(), hosts=hosts)
    found = read_cluster(tmp_path / "input/config/resourceconfig.json")
    assert found.hosts == ("algo-1", "algo-2", "algo-10")
    assert (found.master_address, found.own_address) == ("algo-1", "algo-10")
    assert not found.is_master


def test_a_lone_host_uses_loopback() -> None:
    alone = cluster()
    assert (alone.master_address, alone.own_address, alone.is_master) == (
        "127.0.0.1",
        "127.0.0.1",
        True,
    )


def test_a_host_that_is_not_listed_is_an_infrastructure_failure(tmp_path: Path) -> None:
    path = tmp_path / "resourceconfig.json"
    path.write_text('{"current_host": "algo-3", "hosts": ["algo-1", "algo-2"]}')
    with pytest.raises(LaunchError, match="'algo-3', which is not among hosts algo-1, algo-2"):
        read_cluster(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"current_host": "algo-1", "hosts": ["algo-1", "algo-2", "algo-1"]}',
            "lists algo-1 more than once among 3 hosts",
        ),
        ('{"current_host": "algo-1", "hosts": "algo-1"}', "hosts is 'algo-1'"),
        ('{"current_host": "algo-1", "hosts": []}', "'algo-1', which is not among hosts"),
        ('{"current_host": 1, "hosts": [1]}', "current_host 1"),
        ('{"hosts": ["algo-1"]}', "KeyError('current_host')"),
        ('["algo-1"]', "does not tell the hosts of this job"),
        ('{"current_host": "algo', "does not tell the hosts of this job"),
    ],
)
def test_an_odd_list_of_hosts_is_refused_instead_of_waited_for(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "resourceconfig.json"
    path.write_text(text)
    with pytest.raises(LaunchError) as refused:
        read_cluster(path)
    assert words in str(refused.value)
    assert refused.value.kind == "infrastructure"


def test_a_stop_ends_the_wait_for_other_hosts() -> None:
    def resolve(host: str) -> None:
        raise OSError("unknown")

    asked = iter([False, False, True, True])
    slept: list[float] = []
    wait_for_hosts(
        cluster(2), stop_requested=lambda: next(asked), resolve=resolve, sleep=slept.append
    )
    assert len(slept) == 2


def test_names_of_other_hosts_are_waited_for() -> None:
    answers = iter([OSError("unknown"), OSError("unknown"), None, None])
    slept: list[float] = []

    def resolve(host: str) -> None:
        answer = next(answers)
        if answer is not None:
            raise answer

    wait_for_hosts(cluster(2), resolve=resolve, sleep=slept.append, clock=lambda: 0.0)
    assert len(slept) == 2


def test_a_name_that_never_comes_is_given_up() -> None:
    now = iter(range(0, 10_000, 300))

    def resolve(host: str) -> None:
        raise OSError("unknown")

    with pytest.raises(LaunchError, match="algo-1 is still unknown to the name service"):
        wait_for_hosts(
            cluster(2), resolve=resolve, sleep=lambda _: None, clock=lambda: float(next(now))
        )


def test_gpus_are_counted_by_their_device_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert count_gpus(tmp_path) == 2
    assert count_ranks({"CDKB_PROCESSES_PER_HOST": "5"}, tmp_path) == (2, 2)


def test_a_host_without_gpus_starts_the_ranks_asked_for(tmp_path: Path) -> None:
    assert count_ranks({"CDKB_PROCESSES_PER_HOST": "3"}, tmp_path) == (3, 0)
    assert count_ranks({}, tmp_path) == (1, 0)
    with pytest.raises(ValueError, match="CDKB_PROCESSES_PER_HOST is 'two'"):
        count_ranks({"CDKB_PROCESSES_PER_HOST": "two"}, tmp_path)


def test_only_devices_with_the_efa_driver_count(tmp_path: Path) -> None:
    for device, driver in (("rdmap1s0", "efa"), ("rdmap2s0", "efa"), ("ibp3s0", "mlx5_core")):
        (tmp_path / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (tmp_path / "infiniband" / device / "device").mkdir(parents=True)
        link = tmp_path / "infiniband" / device / "device" / "driver"
        link.symlink_to(tmp_path / "drivers" / driver)
    assert count_efa_devices(tmp_path / "infiniband") == 2
    assert count_efa_devices(tmp_path / "absent") == 0


def fabric(hosts: int, *, gpus: int, devices: int, allow: str = "0") -> Fabric:
    environment = {"CDKB_ALLOW_TCP": allow}
    return check_fabric(cluster(hosts), gpus=gpus, devices=devices, environment=environment)


def test_a_multi_host_gpu_job_never_falls_back_to_tcp_by_itself() -> None:
    with pytest.raises(LaunchError, match=r"no EFA device.* or set CDKB_ALLOW_TCP=1") as error:
        fabric(2, gpus=8, devices=0)
    assert error.value.kind == "infrastructure"
    assert "6 EFA devices for 8 GPUs" in str(fabric(2, gpus=8, devices=6).warning)
    assert fabric(2, gpus=8, devices=8) == Fabric()
    assert fabric(1, gpus=8, devices=0) == Fabric()
    assert fabric(2, gpus=0, devices=0) == Fabric()


def test_tcp_between_hosts_has_to_be_asked_for_and_is_warned_of(tmp_path: Path) -> None:
    found = fabric(2, gpus=8, devices=0, allow="1")
    assert found.tcp
    assert "over TCP, many times slower" in str(found.warning)
    assert not fabric(2, gpus=8, devices=8, allow="1").tcp, "EFA is used where it is there"
    with pytest.raises(LaunchError, match="CDKB_ALLOW_TCP is 'yes'; 0 or 1 is needed"):
        fabric(2, gpus=8, devices=0, allow="yes")
    env = rank_environment(
        {"FI_PROVIDER": "efa"}, cluster=cluster(2), ranks=8, gpus=8, states=tmp_path, tcp=True
    )
    assert env["NCCL_NET"] == "Socket"


# --- Environment and command ---------------------------------------------------------------------


def test_gpu_hosts_get_the_efa_environment_and_no_forced_protocol(tmp_path: Path) -> None:
    env = rank_environment({}, cluster=cluster(2, 2), ranks=8, gpus=8, states=tmp_path)
    assert env["MASTER_ADDR"] == "algo-1"
    assert env["FI_PROVIDER"] == "efa"
    assert env["FI_EFA_USE_HUGE_PAGE"] == "0"
    assert env["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert env["NCCL_SOCKET_IFNAME"] == "eth0"
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in env, "the command line says it"
    assert not {"NCCL_PROTO", "NCCL_ALGO"} & set(env)
    assert env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1", "restarted ranks meet afresh"


def test_hosts_without_gpus_get_none_of_it_and_users_have_the_last_word(tmp_path: Path) -> None:
    base = {"OMP_NUM_THREADS": "7"}
    env = rank_environment(base, cluster=cluster(), ranks=2, gpus=0, states=tmp_path)
    assert env["OMP_NUM_THREADS"] == "7"
    assert not {"FI_PROVIDER", "NCCL_SOCKET_IFNAME", "PYTORCH_CUDA_ALLOC_CONF"} & set(env)


def test_the_command_names_restarts_and_the_time_to_save() -> None:
    spec = tiny_spec(limits={"in_cluster_restarts": 2})
    command = torchrun_command(spec, cluster=cluster(4, 3), ranks=8, script=Path("train_small.py"))
    for part in (
        "--nnodes=4",
        "--nproc-per-node=8",
        "--max-restarts=2",
        "--shutdown-timeout=110",
        "--rdzv-endpoint=algo-1:29500",
        "--rdzv-conf=is_host=0,join_timeout=1200,read_timeout=600",
        "--local-addr=algo-3",
    ):
        assert part in command
    assert command[-1] == "train_small.py"


@pytest.mark.parametrize("tier", get_args(Tier))
def test_every_tier_has_an_entry_script_that_trains_it_and_no_other(tier: Tier) -> None:
    script = SCRIPTS / launch.ENTRY_SCRIPTS[tier]
    assert f'TIER: Final = "{tier}"' in script.read_text()


@pytest.mark.parametrize("tier", get_args(Tier))
def test_the_tier_of_the_run_decides_what_torchrun_starts(
    tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def run(self: Launcher, command: list[str], environment: object, **_: object) -> int:
        started.append(Path(command[-1]).name)
        RankReporter(rank=0, folder=self.states).report("finished")
        return 0

    monkeypatch.setattr(Launcher, "run", run)
    monkeypatch.setattr(launch, "install_missing_wheels", lambda *_, **__: [])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    root = write_container(tmp_path, tiny_spec(tier=tier))
    assert launch.main({"CDKB_ROOT": str(root)}) == 0
    assert started == [launch.ENTRY_SCRIPTS[tier]]


# --- The whole, with a scripted worker in place of torchrun --------------------------------------

WORKER = """
import os, signal, sys, time
sys.path.insert(0, {scripts!r})
from trainer.rank_state import RankReporter
ranks = RankReporter.from_environment(os.environ)
ranks.advance(4)
{body}
"""


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A container whose torchrun is a script that a test fills in."""
    script = tmp_path / "worker.py"
    monkeypatch.setattr(launch, "torchrun_command", lambda *_, **__: [sys.executable, str(script)])
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield script
    for number, handler in before.items():
        signal.signal(number, handler)


def run_scripted(script: Path, body: str) -> tuple[int, str]:
    script.write_text(WORKER.format(scripts=str(SCRIPTS), body=body))
    root = write_container(script.parent / "ml", tiny_spec())
    status = launch.main({**os.environ, "CDKB_ROOT": str(root)})
    failure = root / "output" / "failure"
    return status, failure.read_text() if failure.exists() else ""


def test_a_finished_run_leaves_no_failure(scripted: Path) -> None:
    assert run_scripted(scripted, "ranks.report('finished')") == (0, "")


def test_a_failed_run_leaves_its_class_step_and_rank(scripted: Path) -> None:
    body = "ranks.report('failed', kind='data', message='shard x is corrupt'); sys.exit(1)"
    status, text = run_scripted(scripted, body)
    assert status == 1
    assert text == "CDKB class=data step=4 rank=0: shard x is corrupt"


def test_a_killed_torchrun_is_reported_as_infrastructure(scripted: Path) -> None:
    status, text = run_scripted(scripted, "os.kill(os.getpid(), signal.SIGKILL)")
    assert status == 1
    assert Failure.find(text) == Failure(
        kind="infrastructure",
        message="rank 0 was ended with torchrun, which signal 9 (Killed) ended, before reporting",
        step=4,
        rank=0,
    )


def test_sigterm_is_passed_on_and_a_saved_stop_ends_well(scripted: Path) -> None:
    body = """
def stop(*_):
    assert ranks.stop_requested is True
    ranks.report('stopped')
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
os.kill(os.getppid(), signal.SIGTERM)
time.sleep(30)
"""
    assert run_scripted(scripted, body) == (0, "")


def test_only_the_first_of_several_signals_is_passed_on(scripted: Path) -> None:
    """A second one would break off torchrun's waiting for the ranks' saves."""
    body = """
got = []
signal.signal(signal.SIGTERM, lambda *_: got.append(1))
for _ in range(3):
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(0.2)
ranks.report('stopped' if got == [1] else 'failed', message=f'{len(got)} signals')
sys.exit(1)
"""
    assert run_scripted(scripted, body) == (0, "")


def test_a_start_that_dies_at_its_imports_is_blamed_itself(scripted: Path) -> None:
    """Not a rank of the start before, whose account is still there."""
    body = """
ranks.report('failed', kind='infrastructure', message='the start before')
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
from trainer.entry import enter
sys.modules['trainer.run'] = None
sys.exit(enter('small', os.environ))
"""
    status, text = run_scripted(scripted, body)
    assert status == 1
    assert text.startswith("CDKB class=user step=-1 rank=0: the training script failed at entry.py")
    assert "trainer.run" in text


def test_a_broken_run_file_is_the_users_and_starts_nothing(
    scripted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_container(tmp_path / "ml", tiny_spec())
    run = root / "input/data/config/run.json"
    run.write_text(run.read_text().replace('"micro_batch_size"', '"micro_batch"'))
    assert launch.main({"CDKB_ROOT": str(root)}) == 1
    text = (root / "output/failure").read_text()
    assert text.startswith("CDKB class=user step=-1 rank=-1: ")
    assert "'micro_batch'" in text
    assert "Traceback" not in capsys.readouterr().err


def test_importing_the_launcher_needs_no_third_party_package() -> None:
    heavy = {"torch", "numpy", "boto3", "aws_cdk", "safetensors"}
    assert imported_of(heavy, by="launch") == set()
