"""Does what the run left behind hold up: the export speaks, and nothing still runs."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from cdk_blackwell.cli.demo.processes import processes_below
from cdk_blackwell.cli.errors import AwsRefusedError
from cdk_blackwell.local.aws import LocalAws
from cdk_blackwell.planning.contracts import EXPORT_FOLDER, RunLocation

PROMPT = "def main():\n"
NEW_TOKENS = 24


def list_keys(aws: LocalAws, *, bucket: str, prefix: str = "") -> list[str]:
    """All keys below a prefix."""
    pages = aws.client("s3").get_paginator("list_objects_v2")
    return [
        item["Key"]
        for page in pages.paginate(Bucket=bucket, Prefix=prefix)
        for item in page.get("Contents", [])
    ]


def download_export(aws: LocalAws, *, run: RunLocation, job_name: str, folder: Path) -> list[str]:
    """Fetch the Hugging Face export of a finished attempt; returns its file names."""
    prefix = f"{run.key(EXPORT_FOLDER)}/{job_name}/output/model/"
    keys = list_keys(aws, bucket=run.bucket, prefix=prefix)
    if not any(key.endswith(".safetensors") for key in keys):
        raise AwsRefusedError(
            f"the run left no safetensors export below s3://{run.bucket}/{prefix}"
        )
    s3 = aws.client("s3")
    for key in keys:
        target = folder / key.removeprefix(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(run.bucket, key, str(target))
    return [key.removeprefix(prefix) for key in keys]


def generate(folder: Path) -> str:
    """Load the export with ``transformers``, not with our own code, and continue a prompt."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = tokenizer(PROMPT, return_tensors="pt")
    output = model.generate(
        **prompt, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=tokenizer.eos_token_id
    )
    text: str = tokenizer.decode(output[0])
    return text


def remove_retained(aws: LocalAws) -> list[str]:
    """Delete what the stacks retain on purpose, as their owner would by hand; returns names."""
    removed = []
    fsx = aws.client("fsx")
    for system in fsx.describe_file_systems()["FileSystems"]:
        fsx.delete_file_system(FileSystemId=system["FileSystemId"])
        removed.append(system["FileSystemId"])
    s3 = aws.client("s3")
    for bucket in (item["Name"] for item in s3.list_buckets()["Buckets"]):
        pages = s3.get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=bucket):
            for item in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                s3.delete_object(Bucket=bucket, Key=item["Key"], VersionId=item["VersionId"])
        s3.delete_bucket(Bucket=bucket)
        removed.append(bucket)
    return removed


def left_running(aws: LocalAws, *, stacks: list[str]) -> list[str]:
    """Everything that would still cost money or act by itself; empty when all is well."""
    left = []
    jobs = aws.client("sagemaker").list_training_jobs(StatusEquals="InProgress")
    left += [f"training job {job['TrainingJobName']}" for job in jobs["TrainingJobSummaries"]]
    described = aws.client("cloudformation").describe_stacks()["Stacks"]
    left += [f"stack {stack['StackName']}" for stack in described if stack["StackName"] in stacks]
    interfaces = aws.client("ec2").describe_network_interfaces()["NetworkInterfaces"]
    left += [f"network interface {item['NetworkInterfaceId']}" for item in interfaces]
    functions = aws.client("lambda").list_functions()["Functions"]
    left += [f"function {item['FunctionName']}" for item in functions]
    rules = aws.client("events").list_rules()["Rules"]
    left += [f"rule {item['Name']}" for item in rules]
    systems = aws.client("fsx").describe_file_systems()["FileSystems"]
    left += [f"file system {item['FileSystemId']}" for item in systems]
    return left


def live_processes(folder: Path) -> list[str]:
    """Processes of the embedded AWS and its containers that are still alive."""
    names = []
    for process in processes_below(folder):
        with suppress(psutil.NoSuchProcess):
            names.append(f"process {process.pid} ({process.name()})")
    return names


def received_requests(aws_state: Path) -> dict[str, Any]:
    """Every CreateTrainingJob request, exactly as the emulated SageMaker received it."""
    return {
        request.parent.name: json.loads(request.read_text())
        for request in sorted((aws_state / "training-jobs").glob("*/request.json"))
    }
