"""What kind of value each parameter of a job takes, so that another kind is one clear line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import Duration

from cdk_blackwell.infrastructure.alarms import AlarmThresholds
from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.infrastructure.package_index import PackageIndex
from cdk_blackwell.infrastructure.s3_prefix import S3Prefix
from cdk_blackwell.infrastructure.training_image import TrainingImage
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides
from cdk_blackwell.planning.trial import TrialReport

VALUES: Final[Mapping[str, tuple[type, str]]] = {
    "alarm_thresholds": (AlarmThresholds, "AlarmThresholds(no_progress_minutes=60)"),
    "capacity": (Capacity, "Capacity.on_demand()"),
    "checkpoint_interval": (Duration, "Duration.minutes(15)"),
    "dataset_prefix": (str, "'tokens/'"),
    "environment": (Mapping, "{'NAME': 'value'}"),
    "hang_timeout": (Duration, "Duration.minutes(15)"),
    "image": (TrainingImage, "TrainingImage.from_uri(...)"),
    "in_cluster_restarts": (int, "1"),
    "initial_weights": (S3Prefix, "S3Prefix(bucket, 'weights/')"),
    "job_name": (str, "'pretrain'"),
    "layout": (LayoutOverrides, "LayoutOverrides(context_parallel=8)"),
    "max_attempts": (int, "3"),
    "max_runtime": (Duration, "Duration.days(2)"),
    "measured": (TrialReport, "TrialReport.from_json(text of trial.json)"),
    "model": (ModelShape, "ModelShape.preset('llama-3.1-8b')"),
    "overrides": (RecipeOverrides, "RecipeOverrides(precision='bf16')"),
    "package_index": (PackageIndex, "PackageIndex.default()"),
    "run_id": (str, "'2027-01-15-a'"),
}
"""Parameter to its class, and an example for the message."""

CONSTRUCTS: Final[Mapping[str, str]] = {
    "asset_key": "kms.Key.from_key_arn(...)",
    "checkpoint_store": "CheckpointStore.from_bucket(...)",
    "encryption_key": "kms.Key.from_key_arn(...)",
    "file_system": "SharedFileSystem.from_attributes(...)",
    "foundation": "a Foundation",
    "hugging_face_token": "secretsmanager.Secret.from_secret_name_v2(...)",
    "log_group": "logs.LogGroup.from_log_group_name(...)",
    "role": "iam.Role.from_role_arn(...)",
    "security_group": "ec2.SecurityGroup.from_security_group_id(...)",
    "subnet": "ec2.Subnet.from_subnet_id(...)",
    "topic": "sns.Topic.from_topic_arn(...)",
    "vpc": "ec2.Vpc.from_lookup(...)",
}
"""Parameters that take a construct or its interface; an id, a name or an ARN is the usual slip."""

_PLAIN: Final = (str, bytes, bool, int, float, list, tuple, set, dict)


def check_kinds(given: Mapping[str, Any]) -> None:
    """ValueError names the first parameter of the wrong kind, and what it takes.

    :param given: parameters by name; None and names that are not listed are passed over.
    """
    for name, (kind, example) in VALUES.items():
        value = given.get(name)
        wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
        if value is not None and wrong:
            raise ValueError(f"{name} is {value!r}; give a {kind.__name__}, such as {example}")
    for name, example in CONSTRUCTS.items():
        if isinstance(given.get(name), _PLAIN):
            raise ValueError(
                f"{name} is {given[name]!r}, which is no construct: give one, such as {example}"
            )
    if given.get("job_name") == "":
        raise ValueError("job_name is empty: give a name such as 'pretrain', or leave it out")
