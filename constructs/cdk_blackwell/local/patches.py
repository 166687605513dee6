"""Every private name of moto that the embedded AWS replaces or relies on, checked at start."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
from typing import Any, Final

from cdk_blackwell.local import fsx_api
from cdk_blackwell.local.cloudformation.api import CloudFormationApi

MOTO_VERSION: Final = "5.2.5"

REPLACED_NAMES: Final = (
    ("moto.awslambda.models", "LambdaFunction._invoke_lambda"),
    ("moto.awslambda.models", "LambdaFunction.invoke"),
    ("moto.awslambda.models", "LambdaBackend.get_function"),
    ("moto.awslambda.models", "lambda_backends"),
    ("moto.cloudformation.urls", "url_paths"),
    ("moto.cloudtrail.responses", "CloudTrailResponse.dispatch"),
    ("moto.cloudformation.exceptions", "CloudFormationError"),
    ("moto.core.responses", "ActionResult"),
    ("moto.core.responses", "BaseResponse._get_param"),
    ("moto.core.responses", "EmptyResult"),
    ("moto.events.models", "EventPattern.get_pattern"),
    ("moto.events.models", "EventPattern.matches_event"),
    ("moto.events.models", "Rule.send_to_targets"),
    ("moto.events.models", "events_backends"),
    ("moto.fsx.models", "FileSystem.to_dict"),
    ("moto.fsx.models", "fsx_backends"),
    ("moto.fsx.responses", "FSxResponse.create_file_system"),
    ("moto.iam.access_control", "IAMPolicy.is_action_permitted"),
    ("moto.iam.access_control", "PermissionResult.NEUTRAL"),
    ("moto.moto_server.werkzeug_app", "DomainDispatcherApplication"),
    ("moto.moto_server.werkzeug_app", "MotoRequestHandler"),
    ("moto.moto_server.werkzeug_app", "create_backend_app"),
    ("moto.s3.models", "FakeBucket.get_permission"),
)
"""Module and dotted name. SageMaker's own are in ``local.sagemaker``."""


class MotoMismatchError(RuntimeError):
    """The installed moto lacks something that the embedded AWS needs."""


def check_moto(names: tuple[tuple[str, str], ...] = REPLACED_NAMES) -> None:
    """Raise MotoMismatchError, naming the version and what is missing."""
    missing = []
    for module_name, dotted in names:
        try:
            found: Any = importlib.import_module(module_name)
            for part in dotted.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            missing.append(f"{module_name}.{dotted}")
    if missing:
        version = importlib.metadata.version("moto")
        raise MotoMismatchError(
            f"moto {version} lacks {', '.join(missing)}; the embedded AWS is made for moto"
            f" {MOTO_VERSION}: install cdk-blackwell[local]"
        )


def patch_responses() -> None:
    """Replace CloudFormation as a whole, add FSx associations, evaluate bucket policies."""
    from moto.cloudformation import urls
    from moto.cloudtrail.responses import CloudTrailResponse
    from moto.s3.models import FakeBucket

    urls.url_paths.clear()
    urls.url_paths["{0}/$"] = CloudFormationApi.dispatch
    # The CDK command line asks for the events behind a failure.
    CloudTrailResponse.lookup_events = lambda self: json.dumps({"Events": []})
    FakeBucket.get_permission = _get_permission
    fsx_api.install()


def _get_permission(bucket: Any, action: str, resource: str) -> Any:
    """Replaces ``FakeBucket.get_permission``, which takes conditions for always true.

    The embedded AWS stands for a connection by TLS, so a statement about connections without it
    does not apply; all others do.
    """
    from moto.iam.access_control import IAMPolicy, PermissionResult

    if bucket.policy is None:
        return PermissionResult.NEUTRAL
    policy = json.loads(bucket.policy)
    statements = policy["Statement"]
    statements = statements if isinstance(statements, list) else [statements]
    policy["Statement"] = [one for one in statements if not is_about_insecure_transport(one)]
    if not policy["Statement"]:
        return PermissionResult.NEUTRAL
    return IAMPolicy(json.dumps(policy)).is_action_permitted(action, resource)


def is_about_insecure_transport(statement: dict[str, Any]) -> bool:
    """Whether a statement holds only for connections without TLS, or with an old one."""
    conditions = statement.get("Condition") or {}
    insecure = (conditions.get("Bool") or {}).get("aws:SecureTransport")
    values = insecure if isinstance(insecure, list) else [insecure]
    return [str(value).lower() for value in values] == ["false"] or "s3:TlsVersion" in (
        conditions.get("NumericLessThan") or {}
    )
