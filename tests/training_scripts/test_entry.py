"""What a rank does before torch is imported: an account of itself, and an ear for signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from cdk_blackwell.planning.contracts import ENV_RANK_STATE_DIR
from tests.training_scripts.imports import SCRIPTS, imported_of
from trainer.rank_state import RankState, read_rank_states

PROBE = """
import os, signal, sys, types
from trainer.entry import enter

class Slow:
    '''Finds trainer.run, whose import takes long enough for a signal.'''
    def find_spec(self, name, path, target=None):
        if name == 'trainer.run':
            {during_import}
            module = types.ModuleType(name)
            module.run = lambda tier, environment, *, ranks, stop: (
                ranks.report('stopped' if stop.requested else 'finished') or 0
            )
            sys.modules[name] = module
            from importlib.machinery import ModuleSpec
            class Loader:
                def create_module(self, spec): return module
                def exec_module(self, module): pass
            return ModuleSpec(name, Loader())

sys.meta_path.insert(0, Slow())
sys.exit(enter('small', os.environ))
"""


def enter(during_import: str, states: Path) -> tuple[subprocess.CompletedProcess[str], RankState]:
    states.mkdir(exist_ok=True)
    (states / "stop-requested").touch()  # the launcher itself was asked to stop
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(during_import=during_import)],
        cwd=SCRIPTS,
        env={**os.environ, ENV_RANK_STATE_DIR: str(states), "RANK": "3", "LOCAL_RANK": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (state,) = read_rank_states(states)
    return done, state


def test_a_stop_during_the_imports_is_heeded_after_them(tmp_path: Path) -> None:
    done, state = enter("os.kill(os.getpid(), signal.SIGTERM)", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (state.rank, state.slot, state.state) == (3, 1, "stopped")


def test_a_failed_import_is_accounted_for(tmp_path: Path) -> None:
    done, state = enter("raise ImportError('libcudart.so.13: no such file')", tmp_path)
    assert done.returncode == 1
    assert (state.state, state.kind, state.phase) == ("failed", "user", "starting")
    assert "libcudart.so.13: no such file" in state.message
    assert done.stderr.splitlines()[-1] == f"rank 3: {state.message}"


def test_a_rank_that_is_killed_at_its_imports_has_left_an_account(tmp_path: Path) -> None:
    done, state = enter("os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert (state.state, state.phase, state.step) == ("running", "starting", -1)


def test_nothing_third_party_is_imported_before_the_account() -> None:
    assert imported_of({"torch", "numpy", "boto3"}, by="trainer.entry") == set()
