"""S3 resource types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cdk_blackwell.local.resources.resource_type import (
    ApiType,
    Context,
    Made,
    Properties,
    ResourceError,
    ResourceType,
    cannot_update,
)
from cdk_blackwell.local.resources.shapes import to_shape


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_rename(item, names) for item in value]
    if isinstance(value, dict):
        return {names.get(key, key): _rename(item, names) for key, item in value.items()}
    return value


def _encryption(value: Any) -> Any:
    return _rename(
        value,
        {
            "ServerSideEncryptionConfiguration": "Rules",
            "ServerSideEncryptionByDefault": "ApplyServerSideEncryptionByDefault",
        },
    )


def _lifecycle(value: Any) -> Any:
    return {"Rules": [_lifecycle_rule(rule) for rule in value["Rules"]]}


def _lifecycle_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = _rename(
        dict(rule),
        {
            "Id": "ID",
            "TransitionInDays": "Days",
            "TransitionDate": "Date",
        },
    )
    expiration = {
        name: result.pop(key)
        for key, name in (
            ("ExpirationInDays", "Days"),
            ("ExpirationDate", "Date"),
            ("ExpiredObjectDeleteMarker", "ExpiredObjectDeleteMarker"),
        )
        if key in result
    }
    if expiration:
        result["Expiration"] = expiration
    if "NoncurrentVersionExpirationInDays" in result:
        days = result.pop("NoncurrentVersionExpirationInDays")
        result["NoncurrentVersionExpiration"] = {"NoncurrentDays": days}
    conditions: dict[str, Any] = {}
    if "Prefix" in result:
        conditions["Prefix"] = result.pop("Prefix")
    if "TagFilters" in result:
        conditions["Tags"] = result.pop("TagFilters")
    result.setdefault(
        "Filter", {"And": conditions} if "Tags" in conditions else {"Prefix": "", **conditions}
    )
    return result


def _same(value: Any) -> Any:
    return value


# Property -> API call, its member, translation of the value.
_PARTS: Final[Mapping[str, tuple[str, str, Callable[[Any], Any]]]] = {
    "VersioningConfiguration": ("put_bucket_versioning", "VersioningConfiguration", _same),
    "PublicAccessBlockConfiguration": (
        "put_public_access_block",
        "PublicAccessBlockConfiguration",
        _same,
    ),
    "BucketEncryption": (
        "put_bucket_encryption",
        "ServerSideEncryptionConfiguration",
        _encryption,
    ),
    "LifecycleConfiguration": (
        "put_bucket_lifecycle_configuration",
        "LifecycleConfiguration",
        _lifecycle,
    ),
    "OwnershipControls": ("put_bucket_ownership_controls", "OwnershipControls", _same),
    "LoggingConfiguration": (
        "put_bucket_logging",
        "BucketLoggingStatus",
        lambda value: {
            "LoggingEnabled": {
                "TargetBucket": value["DestinationBucketName"],
                "TargetPrefix": value.get("LogFilePrefix", ""),
            }
        },
    ),
    "Tags": ("put_bucket_tagging", "Tagging", lambda value: {"TagSet": value}),
}


class _Bucket:
    """A bucket is made by one call and configured by others."""

    def create(self, context: Context, properties: Properties) -> Made:
        self._check(context, properties)
        s3 = context.client("s3")
        name = str(properties.get("BucketName") or context.generate_name(limit=63, lower=True))
        where = {"CreateBucketConfiguration": {"LocationConstraint": context.region}}
        s3.create_bucket(Bucket=name, **({} if context.region == "us-east-1" else where))
        made = Made(
            physical_id=name,
            attributes={
                "Arn": f"arn:aws:s3:::{name}",
                "DomainName": f"{name}.s3.amazonaws.com",
                "RegionalDomainName": f"{name}.s3.{context.region}.amazonaws.com",
                "DualStackDomainName": f"{name}.s3.dualstack.{context.region}.amazonaws.com",
                "WebsiteURL": f"http://{name}.s3-website-{context.region}.amazonaws.com",
            },
        )
        try:
            self._configure(context, name, properties)
        except Exception:
            s3.delete_bucket(Bucket=name)
            raise
        return made

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        gone = old.keys() - properties.keys()
        if gone or old.get("BucketName") != properties.get("BucketName"):
            raise cannot_update(f"{context.type} ({', '.join(sorted(gone)) or 'BucketName'})")
        self._check(context, properties)
        changed = {key: item for key, item in properties.items() if old.get(key) != item}
        self._configure(context, made.physical_id, changed)
        return made

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        s3 = context.client("s3")
        try:
            s3.delete_bucket(Bucket=made.physical_id)
        except s3.exceptions.NoSuchBucket:
            return

    def _check(self, context: Context, properties: Properties) -> None:
        unknown = properties.keys() - {*_PARTS, "BucketName", "AccessControl"}
        if unknown:
            raise ResourceError(
                f"{context.type}: {', '.join(sorted(unknown))} is not known to the embedded AWS"
            )

    def _configure(self, context: Context, bucket: str, properties: Properties) -> None:
        s3 = context.client("s3")
        for name, (call, member, translate) in _PARTS.items():
            if name in properties:
                operation = s3.meta.method_to_api_mapping[call]
                shape = s3.meta.service_model.operation_model(operation).input_shape
                value = to_shape(translate(properties[name]), shape.members[member], name)
                getattr(s3, call)(Bucket=bucket, **{member: value})


TYPES: Final[Mapping[str, ResourceType]] = {
    "AWS::S3::Bucket": _Bucket(),
    "AWS::S3::BucketPolicy": ApiType(
        service="s3",
        create_call="put_bucket_policy",
        physical_id="input.Bucket",
        rename={"PolicyDocument": "Policy"},
        put=True,
        delete_call="delete_bucket_policy",
        delete_input={"Bucket": "{id}"},
    ),
}
