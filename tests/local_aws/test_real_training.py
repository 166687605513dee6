"""The repository's own app with a tiny model: trial, run and export by the real trainer.

One server and one deployment for all; each test goes on where the one before ended.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdk_blackwell.bundle import bundle_source
from cdk_blackwell.cli.demo import settings
from cdk_blackwell.cli.demo.dataset import upload
from cdk_blackwell.local.aws import LocalAws
from cdk_blackwell.planning.model_shape import ModelShape
from tests.local_aws.scripted import NEEDS_CDK, ROOT, Scripted, eventually

pytestmark = [pytest.mark.slow, NEEDS_CDK]
VOCABULARY, LENGTH, STEPS = 512, 64, 12
BATCH = 16 * LENGTH
JOB = ("--stack", settings.JOB_STACK)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    folder = tmp_path_factory.mktemp("real")
    prepare_tokens(folder / "tokens")
    with LocalAws(state_dir=folder / "aws", processes_per_host=settings.RANKS) as aws:
        made = Scripted(aws, folder, app=ROOT / "app.py")
        context = json.dumps(tiny_job(folder / "config.json"))
        made.cdk("bootstrap", f"aws://{aws.account}/{aws.region}")
        made.deploy(settings.FOUNDATION_STACK, settings.JOB_STACK, CDK_CONTEXT_JSON=context)
        bucket = made.output(settings.FOUNDATION_STACK, "DatasetBucket")
        upload(aws, folder=folder / "tokens", bucket=bucket, prefix=settings.DATASET_PREFIX)
        yield made


def prepare_tokens(output: Path) -> None:
    command = [
        *(sys.executable, str(bundle_source() / "prepare_data.py")),
        *("--input", sysconfig.get_path("stdlib") + "/json", "--include", "*.py"),
        *("--output", str(output), "--train-tokenizer", "--vocab-size", str(VOCABULARY)),
        *("--workers", "1"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def tiny_job(config: Path) -> dict[str, str]:
    shape = replace(
        settings.shrink(ModelShape.preset("llama-3.2-1b")),
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
    )
    config.write_text(json.dumps(shape.to_hugging_face_config()))
    return {
        "region": settings.REGION,
        "availability_zone": settings.AVAILABILITY_ZONE,
        "model": str(config),
        "dataset_prefix": settings.DATASET_PREFIX,
        "sequence_length": str(LENGTH),
        "global_batch_tokens": str(BATCH),
        "train_tokens": str(STEPS * BATCH),
        "waive_cost_ceiling": "true",
        "precision": "fp32",
        "log_interval_steps": "2",
        "packages_in_image": "true",
    }


def test_a_run_that_needs_a_trial_is_refused_until_one_of_its_recipe_has_passed(
    deployed: Scripted,
) -> None:
    wanted = ("start", "run", *JOB, "--yes", "--require-trial")
    assert "no trial has passed" in deployed.cli(*wanted, status=3)
    report = deployed.json("trial", "try", *JOB, "--yes", "--interval", "1")
    assert report["complete"]
    winner = report["candidates"][report["winner"]]
    assert winner["outcome"] == "ok"
    assert winner["tokens_per_second_per_gpu"] > 0
    assert 0 < winner["loss"] < 1.1 * math.log(VOCABULARY)
    eventually(lambda: deployed.status("try") == "Completed")
    changed = ("start", "other", *JOB, "--yes", "--require-trial", "--set", "recipe.seed=7")
    assert "no trial has passed" in deployed.cli(*changed, status=3)
    assert "SageMaker accepted" in deployed.cli(*wanted)


def test_the_run_trains_to_its_end(deployed: Scripted) -> None:
    frames = deployed.cli("watch", "run", *JOB, "--json", "--interval", "1").splitlines()
    last = json.loads(frames[-1])
    assert (last["state"], last["step"], last["ended"]) == ("completed", STEPS, True)


def test_its_checkpoint_is_listed_and_exported_for_transformers(
    deployed: Scripted, tmp_path: Path
) -> None:
    found = deployed.json("checkpoints", "list", "run", *JOB)["checkpoints"]
    assert [(each["step"], each["complete"]) for each in found][-1] == (STEPS, True)
    output = tmp_path / "model"
    deployed.cli("checkpoints", "export", "run", *JOB, "--output", str(output))
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(output)
    tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    tokens = tokenizer("def loads(s, *,", return_tensors="pt")
    assert model(**tokens).logits.shape[-1] == VOCABULARY
