"""The checks that need a GPU are ready for one: without it they skip, each with the reason."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from cdk_blackwell.planning.run_spec import Precision
from tests.gpu.one_gpu import missing_precision
from tests.gpu.test_precision import SHAPE
from trainer.model import Decoder
from trainer.precision import apply_precision

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "gpu" / "run.sh"


def test_the_script_is_sound_and_refuses_what_it_does_not_know() -> None:
    assert os.access(SCRIPT, os.X_OK)
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    refused = subprocess.run(
        ["bash", SCRIPT, "--fast"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "usage: tests/gpu/run.sh [--install]" in refused.stderr


def test_time_limits_add_up_to_five_minutes_at_most() -> None:
    limits = dict(
        line.split("#")[0].strip().split("=")
        for line in SCRIPT.read_text().splitlines()
        if "_SECONDS=" in line
    )
    assert int(limits["TEST_SECONDS"]) <= 60
    assert int(limits["TESTS_SECONDS"]) + int(limits["BENCHMARK_SECONDS"]) <= 300


def test_every_gpu_test_is_marked_and_none_runs_by_default() -> None:
    modules = sorted((ROOT / "tests/gpu").glob("test_*.py"))
    assert modules
    for path in modules:
        module = importlib.import_module(f"tests.gpu.{path.stem}")
        assert module.pytestmark.name == "gpu", path.name
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    assert "not gpu" in settings["ini_options"]["addopts"][-1]


def skip_reason(case: ElementTree.Element) -> str:
    """What junit says of a test that was skipped."""
    skipped = case.find("skipped")
    return "it ran" if skipped is None else skipped.get("message", "")


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU: run.sh uses it")
def test_without_a_gpu_everything_skips_with_the_reason(tmp_path: Path) -> None:
    environment = os.environ | {
        "OUT": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "benchmarks.trainer_gpu was left out: torch finds no NVIDIA GPU" in done.stdout
    cases = list(ElementTree.parse(tmp_path / "junit.xml").iter("testcase"))
    files = {case.get("classname", "").split(".")[-1] for case in cases}
    assert files == {path.stem for path in (ROOT / "tests/gpu").glob("test_*.py")}, "collected"
    reasons = {skip_reason(case) for case in cases} or {"no test"}
    assert all(reason.startswith("no NVIDIA GPU: torch ") for reason in reasons), reasons
    assert not (tmp_path / "figures.json").exists(), "nothing was measured"


def test_a_precision_that_a_gpu_lacks_is_named_with_what_it_needs() -> None:
    assert missing_precision("mxfp8", (9, 0), "H200") == "mxfp8 needs SM100 or later: H200 is SM90"
    assert missing_precision("fp8", (8, 6), "A10G") == "fp8 needs SM89 or later: A10G is SM86"
    assert missing_precision("mxfp8", (10, 0), "B200") is None
    assert missing_precision("bf16", (8, 0), "A100") is None


@pytest.mark.parametrize("precision", ["fp8", "fp8_rowwise", "mxfp8"])
def test_the_model_is_large_enough_for_8_bits_on_a_gpu(precision: Precision) -> None:
    with torch.device("meta"):
        model = Decoder(SHAPE)
    assert apply_precision(model, precision, emulate=False) >= 2 * SHAPE.num_hidden_layers
