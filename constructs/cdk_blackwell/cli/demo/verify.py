"""Does what the run left behind hold up: the export speaks, and nothing still runs."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from cdk_blackwell.cli.demo.processes import processes_below
from cdk_blackwell.cli.errors import CheckFailedError
from cdk_blackwell.local.aws import LocalAws
from cdk_blackwell.planning.contracts import EXPORT_FOLDER, RunLocation

PROMPT = "    def __init__(self"
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
        raise CheckFailedError(
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
    # transformers imports torchao, which would warn of each CUDA library that a CPU cannot load.
    os.environ["TORCHAO_FORCE_SKIP_LOADING_SO_FILES"] = "1"
    for name in ("torchao", "torch.utils._pytree"):  # They would write across the demo's screen.
        logging.getLogger(name).setLevel(logging.ERROR)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = tokenizer(PROMPT, return_tensors="pt")
    output = model.generate(
        **prompt,
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        repetition_penalty=1.3,
        pad_token_id=tokenizer.eos_token_id,
    )
    text: str = tokenizer.decode(output[0])
    return text


def remove_retained(aws: LocalAws, *, vpc: str) -> list[str]:
    """Delete what the foundation retains on purpose, as its owner would by hand; returns ids.

    The file system goes first, because its network interfaces hold the network.
    """
    fsx, ec2, kms = aws.client("fsx"), aws.client("ec2"), aws.client("kms")
    removed = []
    for system in fsx.describe_file_systems()["FileSystems"]:
        fsx.delete_file_system(FileSystemId=system["FileSystemId"])
        removed.append(system["FileSystemId"])
    in_vpc = [{"Name": "vpc-id", "Values": [vpc]}]
    for group in ec2.describe_security_groups(Filters=in_vpc)["SecurityGroups"]:
        if group["GroupName"] != "default":
            ec2.delete_security_group(GroupId=group["GroupId"])
            removed.append(group["GroupId"])
    for subnet in ec2.describe_subnets(Filters=in_vpc)["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
        removed.append(subnet["SubnetId"])
    ec2.delete_vpc(VpcId=vpc)
    removed.append(vpc)
    removed += _delete_buckets(aws)
    for key in kms.list_keys()["Keys"]:
        metadata = kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]
        if metadata["KeyManager"] == "CUSTOMER" and metadata["KeyState"] == "Enabled":
            kms.schedule_key_deletion(KeyId=key["KeyId"])
            removed.append(key["KeyId"])
    return removed


def _delete_buckets(aws: LocalAws) -> list[str]:
    s3 = aws.client("s3")
    names = [item["Name"] for item in s3.list_buckets()["Buckets"]]
    for bucket in names:
        # The first page again and again: a page's marker means nothing once its key is deleted.
        while found := _first_versions(s3.list_object_versions(Bucket=bucket)):
            s3.delete_objects(Bucket=bucket, Delete={"Objects": found, "Quiet": True})
        s3.delete_bucket(Bucket=bucket)
    return names


def _first_versions(page: Mapping[str, Any]) -> list[dict[str, str]]:
    found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
    return [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in found]


_LISTED = (
    # what, service, call, list in its answer, name in the list's entries (None: the entry)
    ("function", "lambda", "list_functions", "Functions", "FunctionName"),
    ("rule", "events", "list_rules", "Rules", "Name"),
    ("interface", "ec2", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
    ("VPC endpoint", "ec2", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId"),
    ("file system", "fsx", "describe_file_systems", "FileSystems", "FileSystemId"),
    ("alarm", "cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    ("dashboard", "cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    ("queue", "sqs", "list_queues", "QueueUrls", None),
    ("topic", "sns", "list_topics", "Topics", "TopicArn"),
    ("table", "dynamodb", "list_tables", "TableNames", None),
)
"""Everything that acts by itself or is billed by the hour, and how to list it."""


def left_running(aws: LocalAws, *, stacks: list[str]) -> list[str]:
    """Everything that would still cost money or act by itself; empty when all is well."""
    jobs = aws.client("sagemaker").list_training_jobs(StatusEquals="InProgress")
    left = [f"training job {job['TrainingJobName']}" for job in jobs["TrainingJobSummaries"]]
    described = aws.client("cloudformation").describe_stacks()["Stacks"]
    left += [f"stack {stack['StackName']}" for stack in described if stack["StackName"] in stacks]
    for what, service, call, key, name in _LISTED:
        for item in getattr(aws.client(service), call)().get(key, []):
            if name is None:
                left.append(f"{what} {item}")
            elif str(item.get("State", "")).lower() not in ("deleted", "deleting"):
                left.append(f"{what} {item[name]}")
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
