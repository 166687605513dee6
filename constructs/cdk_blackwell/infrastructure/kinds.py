"""What kind of value each parameter of a construct takes, so that another kind is one clear line.

Read from the constructors' own type hints. Without it a text such as ``"false"`` would count as
true, and a value that CloudFormation knows only at deploy would be taken for a huge number.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from aws_cdk import Duration, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns

INTERFACES: Final[Mapping[Any, tuple[str, str]]] = {
    ec2.ISecurityGroup: ("security_group_id", "ec2.SecurityGroup.from_security_group_id(...)"),
    ec2.ISubnet: ("subnet_id", "ec2.Subnet.from_subnet_attributes(...)"),
    ec2.IVpc: ("vpc_id", "ec2.Vpc.from_lookup(...)"),
    ecr.IRepository: ("repository_arn", "ecr.Repository.from_repository_name(...)"),
    iam.IRole: ("role_arn", "iam.Role.from_role_arn(...)"),
    kms.IKey: ("key_arn", "kms.Key.from_key_arn(...)"),
    lambda_.IFunction: ("function_arn", "lambda_.Function.from_function_name(...)"),
    logs.ILogGroup: ("log_group_arn", "logs.LogGroup.from_log_group_name(...)"),
    s3.IBucket: ("bucket_arn", "s3.Bucket.from_bucket_name(...)"),
    secretsmanager.ISecret: ("secret_arn", "secretsmanager.Secret.from_secret_name_v2(...)"),
    sns.ITopic: ("topic_arn", "sns.Topic.from_topic_arn(...)"),
}
"""The CDK's interfaces: an attribute that only they have, and how to get one."""

EXAMPLES: Final[Mapping[str, str]] = {
    "alarm_thresholds": "AlarmThresholds(no_progress_minutes=60)",
    "capacity": "Capacity.on_demand()",
    "checkpoint_store": "CheckpointStore.from_bucket(...)",
    "dataset_prefix": "'tokens/'",
    "environment": "{'NAME': 'value'}",
    "file_system": "SharedFileSystem.from_attributes(...)",
    "foundation": "a Foundation",
    "image": "TrainingImage.from_uri(...)",
    "initial_weights": "S3Prefix(bucket=bucket, prefix='weights/')",
    "interface_endpoints": "['monitoring']",
    "job_name": "'pretrain'",
    "layout": "LayoutOverrides(context_parallel=8)",
    "measured": "TrialReport.from_json(text of trial.json)",
    "model": "ModelShape.preset('llama-3.1-8b')",
    "network": "TrainingNetwork.from_subnet(...)",
    "overrides": "RecipeOverrides(precision='bf16')",
    "package_index": "PackageIndex.default()",
    "run_id": "'2027-01-15-a'",
    "storage_needs": "[storage_needs(model, instance_count=2)]",
}
"""By parameter; what is not here has an example of its kind."""

_PLAIN: Final[Mapping[Any, tuple[str, str]]] = {
    bool: ("bool", "True"),
    int: ("whole number", "1"),
    float: ("number", "1.5"),
    str: ("text", "'name'"),
    Duration: ("Duration", "Duration.hours(12)"),
}
_SMALLEST_NUMBER: Final = -1e200
"""Tokens that stand for numbers lie below it."""


def check_kinds(
    constructor: Callable[..., Any], given: Mapping[str, Any], *, tokens: Collection[str] = ()
) -> None:
    """ValueError names the first parameter of the wrong kind, and what it takes.

    :param constructor: whose type hints say what each parameter takes.
    :param given: parameters by name; None and names that are no parameter are passed over.
    :param tokens: parameters whose text may be known only at deploy. Default: none; lists, other
        constructs and members of values that have their own checks are not judged.
    """
    for name, kinds in _kinds_of(constructor).items():
        value = given.get(name)
        if value is None:
            continue
        if name not in tokens:
            refuse_token(name, value)
        if not any(_is_a(kind, value) for kind in kinds):
            raise ValueError(_wrong(name, kinds[0], value))


def refuse_token(name: str, value: object) -> None:
    """ValueError when ``value`` (text, number or Duration) is known only at deploy."""
    if is_token(value):
        raise ValueError(
            f"{name} is a CDK token (such as a CfnParameter's value), known only when the stack is "
            "deployed, and plan, names and limits are made at synth: give the value itself, for "
            "example from context"
        )


def is_token(value: object) -> bool:
    """As ``Token.is_unresolved``, asking Node only where the value can be one."""
    if isinstance(value, str):
        return "${Token[" in value and Token.is_unresolved(value)
    if isinstance(value, int | float):
        return value < _SMALLEST_NUMBER and Token.is_unresolved(value)
    return isinstance(value, Duration) and value.is_unresolved()


_Default = TypeVar("_Default", int, None)


def whole_seconds(name: str, duration: Duration | None, default: _Default) -> int | _Default:
    """``duration`` in seconds; ValueError for what is none, not whole, or known only at deploy."""
    if duration is None:
        return default
    if not isinstance(duration, Duration):
        raise ValueError(_wrong(name, Duration, duration))
    refuse_token(name, duration)
    seconds = duration.to_seconds(integral=False)
    if seconds != int(seconds):
        raise ValueError(f"{name} is {seconds:g} seconds; give whole seconds, such as 60")
    return int(seconds)


@lru_cache(maxsize=32)
def _kinds_of(constructor: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """By parameter, the kinds of its hint without None."""
    hints = get_type_hints(constructor)
    return {
        name: _options(hint)
        for name, hint in hints.items()
        if name not in ("return", "scope", "construct_id")
    }


def _options(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(option for option in get_args(hint) if option is not type(None))
    return (hint,)


def _is_a(kind: Any, value: object) -> bool:
    origin = get_origin(kind)
    if origin is Literal:
        return value in get_args(kind)
    if origin is not None:
        # A text is a sequence too, of letters.
        return isinstance(value, origin) and not isinstance(value, str | bytes)
    if kind in INTERFACES:
        return _has(value, INTERFACES[kind][0])
    if _is_protocol(kind):
        return all(_has(value, name) for name in _members(kind))
    if kind is float:
        kind = int | float
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _has(value: object, name: str) -> bool:
    """Without asking Node for the attribute's value, unless it answers for names of its own."""
    kind = type(value)
    return (
        hasattr(kind, name)
        or name in getattr(value, "__dict__", {})
        or (hasattr(kind, "__getattr__") and hasattr(value, name))
    )


def _is_protocol(kind: Any) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _members(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if not name.startswith("_")]


def _wrong(name: str, kind: Any, value: object) -> str:
    if kind in INTERFACES or _is_protocol(kind):
        example = EXAMPLES.get(name) or INTERFACES[kind][1]
        return (
            f"{name} is {_shown(value)}, which is no {kind.__name__}: give one, such as {example}"
        )
    if get_origin(kind) is Literal:
        return f"{name} {value!r} is not allowed: give one of {', '.join(get_args(kind))}"
    noun, example = _PLAIN.get(kind, (_name_of(kind), ""))
    return f"{name} is {_shown(value)}; give a {noun}, such as {EXAMPLES.get(name) or example}"


def _name_of(kind: Any) -> str:
    origin = get_origin(kind) or kind
    return {Sequence: "list", Mapping: "mapping"}.get(origin) or str(origin.__name__)


def _shown(value: object) -> str:
    """A plain value itself; of anything else its class, since its text may be long or ask Node."""
    plain = isinstance(value, str | bytes | bool | int | float | list | tuple | dict | set)
    return repr(value) if plain else f"a {type(value).__name__}"
