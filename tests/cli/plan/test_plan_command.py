"""The command as people and programs use it: exit codes, streams, width, JSON and refusals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

import cdk_blackwell.planning
from cdk_blackwell.cli.main import app
from cdk_blackwell.planning import plan_schema
from cdk_blackwell.planning.contracts import SCHEMA_VERSION
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan
from cdk_blackwell.planning.presets import PRESETS
from cdk_blackwell.planning.trial import TrialCandidate, TrialReport

ROOT = Path(__file__).parents[3]
MID = ("--model", "llama-3.1-8b", "--sequence-length", "8k", "--nodes", "4")
LARGE = ("--model", "llama-3-64b", "--sequence-length", "128k", "--nodes", "2")
TOO_LARGE = (*LARGE, "--activation-checkpointing", "none")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The installed command in a process of its own, not on a terminal."""
    return subprocess.run(
        [sys.executable, "-c", "from cdk_blackwell.cli.entry import main; main()", "plan", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "80"},
        check=False,
    )


def invoke(*words: str) -> Result:
    """The command in this process."""
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["plan", *words])


def planned(*words: str) -> dict[str, Any]:
    found = json.loads(invoke(*words, "--json").stdout)
    assert isinstance(found, dict)
    return found


def test_a_plan_is_a_screen_of_80_columns_and_exit_0() -> None:
    done = run(*MID)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    for part in ("llama-3.1-8b", "MidModelJob", "4 nodes of 8 GPUs", "budget", "price not given"):
        assert part in done.stdout


@pytest.mark.parametrize("model", ["qwen2.5-0.5b", "llama-2-13b", "mistral-small-24b", "qwen3-32b"])
@pytest.mark.parametrize("length", ["2k", "128k"])
def test_no_screen_is_wider_than_80_columns(model: str, length: str) -> None:
    shown = invoke("--model", model, "-s", length, "--explain", "--details").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    "words",
    [
        (*MID, "--hourly-price-usd", "9999", "--train-tokens", "900T", "--explain", "--details"),
        (*MID, "--precision", "bf16", "--tensor-parallel", "8", "--explain", "--details"),
        (*TOO_LARGE, "--explain", "--details"),
        ("--model", "llama-3-64b", "-s", "128k", "--nodes", "64", "--explain", "--details"),
        ("--model", "qwen2.5-0.5b", "--gpus", "1", "--eager", "--optimizer", "foreach"),
        (*MID, "--hourly-price-usd", "98.84", "--max-cost-usd", "100", "--explain"),
        ("--list-models",),
        ("--help",),
    ],
    ids=" ".join,
)
def test_every_mode_stays_within_80_columns(words: tuple[str, ...]) -> None:
    shown = invoke(*words)
    assert shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_the_memory_margin_of_tensor_parallelism_is_shown_and_counted() -> None:
    words = (*MID, "--precision", "bf16", "--tensor-parallel", "2")
    memory = planned(*words)["memory"]
    shown = " ".join(invoke(*words).stdout.split())
    assert memory["margin_gib"] > 0
    assert f"margin of error {memory['margin_gib']:.1f}" in shown
    assert f"with margin {memory['reserved_gib'] + memory['margin_gib']:.1f}" in shown
    assert "margin" not in invoke(*MID).stdout


@pytest.mark.parametrize(("words", "kernels"), [((), "compiled"), (("--eager",), "plain (eager)")])
def test_the_screen_says_which_kernels_memory_was_counted_for(
    words: tuple[str, ...], kernels: str
) -> None:
    assert f"for {kernels} kernels" in " ".join(invoke(*MID, *words).stdout.split())


@pytest.mark.parametrize(
    "words",
    [
        MID,
        (*MID, "--hourly-price-usd", "98.84", "--train-tokens", "300B"),
        (*MID, "--eager", "--precision", "bf16", "--keep-weights", "--optimizer", "foreach"),
        ("--model", "qwen3-0.6b", "--gpus", "2"),
        LARGE,
        TOO_LARGE,
        ("--model", "llama-3.1-8b", "--tier", "small"),
    ],
    ids=str,
)
def test_json_is_one_object_of_the_documented_shape(words: tuple[str, ...]) -> None:
    jsonschema.validate(planned(*words), plan_schema.plan_schema())


def test_the_schema_in_the_repository_is_the_codes_own() -> None:
    path = Path(plan_schema.__file__).with_name("plan.schema.json")
    assert json.loads(path.read_text()) == plan_schema.plan_schema()


def test_json_has_the_keys_that_the_design_promises() -> None:
    found = planned(*MID)
    promised: dict[str, set[str]] = {
        "model": {"parameters"},
        "recipe": set(),
        "layout": {"shard_gpus", "replicas", "context_parallel", "tensor_parallel"},
        "memory": {"allocated_gib", "reserved_gib", "budget_gib", "fits", "parts_gib"},
        "throughput": {
            *("flops_per_token", "flops_convention", "tokens_per_second_per_gpu", "mfu"),
            *("bound", "assumptions"),
        },
        "cost": {"hours", "usd"},
    }
    for key, inner in promised.items():
        assert inner <= set(found[key])
    assert found["throughput"]["flops_convention"] == "causal"
    assert {"tier", "micro_batch_size", "activation_checkpointing", "precision"} <= set(found)
    assert found["cost"]["usd"] is None


def test_options_reach_the_planner() -> None:
    found = planned(
        *("--model", "yi-34b", "-s", "4_096", "--nodes", "4", "--precision", "mxfp8"),
        *("--global-batch-tokens", "2M", "--train-tokens", "1.5T", "--micro-batch-size", "2"),
        *("--activation-checkpointing", "every:2", "--shard-gpus", "16", "--context-parallel", "2"),
        *("--ulysses", "1", "--tensor-parallel", "1", "--loss-chunks", "4", "--eager"),
        *("--optimizer", "foreach", "--reshard", "--gradient-sync", "step"),
        *("--hourly-price-usd", "100"),
    )
    recipe, layout = found["recipe"], found["layout"]
    assert found["train_tokens"] == 1_500_000_000_000
    assert found["tier"] == "large-sharded"
    assert found["cost"]["hourly_price_usd"] == 100
    assert {key: recipe[key] for key in ("precision", "micro_batch_size", "loss_chunks")} == {
        "precision": "mxfp8",
        "micro_batch_size": 2,
        "loss_chunks": 4,
    }
    assert recipe["global_batch_tokens"] == 2 * 2**20
    assert recipe["activation_checkpointing"] == "every:2"
    assert recipe["compile"] is False
    assert recipe["optimizer"]["implementation"] == "foreach"
    assert layout == {
        "shard_gpus": 16,
        "replicas": 2,
        "context_parallel": 2,
        "tensor_parallel": 1,
        "ulysses": 1,
        "reshard_after_forward": True,
        "gradient_sync": "step",
    }


def test_what_does_not_fit_is_shown_all_the_same_and_ends_with_3() -> None:
    done = run(*TOO_LARGE)
    assert done.returncode == 3
    assert "too much" in done.stdout
    assert "Refused" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("cdk-blackwell: llama-3-64b at 131,072 tokens on 2 nodes needs ")
    found = run(*TOO_LARGE, "--json")
    assert found.returncode == 3
    plan = json.loads(found.stdout)
    assert plan["memory"]["fits"] is False
    assert plan["refusal"]["changes"]


def test_every_change_that_a_refusal_names_passes() -> None:
    from cdk_blackwell.cli.plan.flags import command_words

    for change in planned(*TOO_LARGE)["refusal"]["changes"]:
        words = command_words(change["settings"]).split()
        # The last of two equal options counts.
        assert invoke(*TOO_LARGE, *words).exit_code == 0


def test_a_cost_ceiling_refuses() -> None:
    done = run(*MID, "--hourly-price-usd", "98.84", "--max-cost-usd", "100")
    assert done.returncode == 3
    assert "--max-cost-usd" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "gpt-17"), "gpt-17"),
        (("--model", ""), "--model is empty"),
        ((*MID, "--loss-chunks", "99999"), "--loss-chunks is 99999"),
        (("--model", "no/such/config.json"), "cannot be read"),
        ((*MID, "--nodes", "0"), "--nodes is 0"),
        ((*MID, "--nodes", "1" + "0" * 30), "--nodes"),
        ((*MID, "--nodes", "-3"), "'-3' is not a plain whole number"),
        ((*MID, "--nodes", "2.5"), "'2.5' is not a plain whole number"),
        ((*MID, "--gpus", "12"), "--gpus is 12"),
        (("--model", "yi-34b", "--gpus", "12"), "--gpus is 12"),
        ((*MID, "--sequence-length", "256k"), "--sequence-length is 262144"),
        ((*MID, "--activation-checkpointing", "some"), "every:K"),
        ((*MID, "--precision", "fp4"), "fp4"),
        ((*MID, "--tensor-parallel", "3"), "--tensor-parallel"),
        ((*MID, "--tensor-parallel", "2"), "splits matrices, which precision fp8"),
        (("--model", "olmo-2-7b", "--tensor-parallel", "2"), "normalises all"),
        ((*MID, "--micro-batch-size", "3", "--global-batch-tokens", "4M"), "--micro-batch-size"),
        ((*MID, "--micro-batch-size", "0"), "--micro-batch-size is 0"),
        ((*MID, "--train-tokens", "1" + "0" * 30), "--train-tokens"),
        ((*MID, "--context-parallel", "64", "--shard-gpus", "8"), "--context-parallel is 64"),
        ((*MID, "--ulysses", "3"), "--ulysses is 3"),
        ((*MID, "--context-parallel", "3"), "--context-parallel"),
        ((*MID, "--hourly-price-usd", "free"), "US dollars"),
        ((*MID, "--measured", "no/trial.json"), "cannot be read"),
        ((*MID, "--measured", "pyproject.toml"), "not JSON"),
        ((*MID, "--chart", "plan.gif"), ".png, .svg or .html"),
        ((*MID, "--chart", "no/such/folder/plan.svg"), "not a writable folder"),
        ((*MID, "--bogus"), "--bogus"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words: tuple[str, ...], says: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert says in line
    for python in ("Traceback", "Error", "None", "_gpus", "instance_count", "int("):
        assert python not in line


def test_without_a_model_the_presets_are_listed() -> None:
    done = run()
    assert done.returncode == 2
    assert "llama-3.1-8b" in done.stdout
    assert "--model" in done.stderr
    assert run("--json").stdout == ""


def test_the_list_of_models_has_every_preset_and_its_tier() -> None:
    shown = invoke("--list-models").stdout
    assert max(map(len, shown.splitlines())) <= 80
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert set(PRESETS) <= set(lines)
    assert lines["llama-3-64b"].split()[-1] == "large-sharded"
    assert lines["qwen2.5-0.5b"].split()[1] == "0.49B"


def test_a_config_file_is_planned_and_its_readers_warning_shown(tmp_path: Path) -> None:
    config = ModelShape.preset("mistral-7b").to_hugging_face_config()
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "model_type": "mistral", "sliding_window": 4096}))
    done = invoke("--model", str(path), "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["model"]["parameters"] == ModelShape.preset("mistral-7b").parameter_count
    assert any("sliding_window" in warning for warning in found["warnings"])
    assert "sliding_window" in invoke("--model", str(path)).stdout.replace("\n", " ")


def test_a_trial_runs_speed_replaces_the_assumed_one(tmp_path: Path) -> None:
    assumed = make_plan(
        model=ModelShape.preset("llama-3.1-8b"), sequence_length=8192, instance_count=4
    )
    measured_speed = assumed.throughput.tokens_per_second_per_gpu * 2
    report = TrialReport(
        schema_version=SCHEMA_VERSION,
        model=assumed.model,
        gpus=assumed.gpus,
        complete=True,
        candidates=(
            TrialCandidate(
                layout=assumed.layout,
                recipe=assumed.recipe,
                outcome="ok",
                tokens_per_second_per_gpu=measured_speed,
                mfu=None,
                allocated_gib=None,
                reserved_gib=None,
                loss=None,
                message="",
            ),
        ),
        winner=0,
        reason="the only one",
    )
    path = tmp_path / "trial.json"
    path.write_text(report.to_json())
    speed = planned(*MID, "--measured", str(path))["throughput"]
    assert speed["tokens_per_second_per_gpu"] == pytest.approx(measured_speed)
    assert any("trial" in text for text in speed["assumptions"])


def test_explanations_come_in_the_five_groups_order() -> None:
    shown = invoke(*MID, "--explain").stdout
    titles = ("1. Batch", "2. Precision", "3. Activation", "4. Distributed", "5. GPU monitoring")
    places = [shown.index(title) for title in titles]
    assert places == sorted(places)
    assert "as chosen" in shown


def test_an_alternative_layout_is_told_by_what_it_leaves_out() -> None:
    words = ("--model", "llama-3.1-8b", "-s", "128k", "--nodes", "1", "--explain")
    assert "without context parallel 2" in invoke(*words).stdout


def test_details_show_both_flop_conventions_and_all_phases() -> None:
    shown = invoke(*MID, "--details").stdout
    assert "(causal)" in shown
    assert "(PaLM)" in shown
    assert "Megatron-class stacks reach" in shown
    for phase in planned(*MID)["throughput"]["phases"]:
        assert phase.replace("_", " ") in shown


def test_output_has_no_escapes_off_a_terminal_and_with_no_color() -> None:
    assert "\x1b" not in run(*MID).stdout
    colourless = CliRunner(env={"NO_COLOR": "1", "FORCE_COLOR": "1"}).invoke(app, ["plan", *MID])
    assert "\x1b[3" not in colourless.stdout


def test_a_terminal_without_unicode_gets_a_plan_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from cdk_blackwell.cli.entry import main; main()", "plan", *MID],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 0
    assert b"budget" in done.stdout


def test_help_stays_light() -> None:
    script = (
        "import sys; from cdk_blackwell.cli.main import app\n"
        "from typer.testing import CliRunner\n"
        "CliRunner().invoke(app, ['plan', '--help'])\n"
        "heavy = {'aws_cdk', 'boto3', 'botocore', 'torch', 'altair', 'vl_convert', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_planner_itself_knows_nothing_of_the_command_line() -> None:
    folder = Path(cdk_blackwell.planning.__file__).parent
    assert not [path for path in folder.glob("*.py") if "cdk_blackwell.cli" in path.read_text()]


def test_hours_nodes_and_money_on_the_screen_are_one_calculation() -> None:
    """Whatever is said about cost includes what is expected to be lost."""
    wish = ("--model", "yi-34b", "--nodes", "16", "--train-tokens", "2T")
    hours = float(words(invoke(*wish).stdout, r"tokens: ([\d,]+) hours"))
    node_hours = float(words(invoke(*wish).stdout, r": ([\d,]+) node-hours"))
    money = float(words(invoke(*wish, "--hourly-price-usd", "100").stdout, r"([\d,]+) USD at"))
    assert node_hours == pytest.approx(16 * hours, rel=0.01)
    assert money == pytest.approx(100 * node_hours, rel=0.001)


def words(screen: str, pattern: str) -> str:
    """The number that stands there, without separators."""
    found = re.search(pattern, " ".join(screen.split()))
    assert found, screen
    return found[1].replace(",", "")


def test_a_model_name_that_no_file_can_have_is_no_preset() -> None:
    done = invoke("--model", "x" * 5000)
    assert "is not a preset" in str(done.exception)
    assert len(str(done.exception)) < 1000
