"""A template without a fault: two instances, FSx, checkpoints, controller. Tests break it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from cdk_blackwell.compliance.checking import broken_rules
from cdk_blackwell.compliance.templates import Templates

Body = dict[str, Any]
Resources = dict[str, Body]
RUN = "Run"


def ref(name: str) -> Body:
    return {"Ref": name}


def get(name: str, attribute: str) -> Body:
    return {"Fn::GetAtt": [name, attribute]}


def resource(kind: str, properties: Body, **rest: Any) -> Body:
    return {"Type": kind, "Properties": properties, **rest}


def rule(kind: str, of: str, peer: str, protocol: str, first: int | None = None) -> Body:
    side = "SourceSecurityGroupId" if kind == "Ingress" else "DestinationSecurityGroupId"
    last = 1023 if first == 1018 else first
    ports = {} if first is None else {"FromPort": first, "ToPort": last}
    return resource(
        f"AWS::EC2::SecurityGroup{kind}",
        {
            "GroupId": get(of, "GroupId"),
            side: get(peer, "GroupId"),
            "IpProtocol": protocol,
            **ports,
        },
    )


def policy(role: str, *actions: str) -> Body:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return resource(
        "AWS::IAM::Policy", {"Roles": [ref(role)], "PolicyDocument": {"Statement": [statement]}}
    )


def request() -> Body:
    return {
        "TrainingJobName": "{{job_name}}",
        "RoleArn": get("TrainingRole", "Arn"),
        "AlgorithmSpecification": {
            "TrainingImage": {
                "Fn::Join": [
                    "",
                    [
                        "763104351884.dkr.ecr.",
                        ref("AWS::Region"),
                        ".amazonaws.com/pytorch:2.13-cu133-amzn2023-sagemaker",
                    ],
                ]
            },
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/bash", "-c"],
        },
        "InputDataConfig": [
            {
                "ChannelName": "checkpoints",
                "DataSource": {
                    "FileSystemDataSource": {
                        "FileSystemId": ref("Files"),
                        "FileSystemType": "FSxLustre",
                        "FileSystemAccessMode": "rw",
                        "DirectoryPath": "/mount/checkpoints",
                    }
                },
            }
        ],
        "OutputDataConfig": {"S3OutputPath": "{{run_uri}}/export/", "CompressionType": "NONE"},
        "ResourceConfig": {
            "InstanceType": "ml.p6-b200.48xlarge",
            "InstanceCount": 2,
            "VolumeSizeInGB": 500,
        },
        "VpcConfig": {
            "SecurityGroupIds": [get("JobGroup", "GroupId")],
            "Subnets": [ref("Subnet")],
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 86_400, "MaxPendingTimeInSeconds": 7_200},
        "RetryStrategy": {"MaximumRetryAttempts": 3},
        "Environment": {"FI_PROVIDER": "efa", "CDKB_RUN_S3": "{{run_uri}}"},
    }


def resources() -> dict[str, Body]:
    alarm = {"AlarmActions": [ref("Topic")]}
    return {
        "Vpc": resource("AWS::EC2::VPC", {}),
        "Subnet": resource(
            "AWS::EC2::Subnet", {"VpcId": ref("Vpc"), "AvailabilityZone": "us-west-2b"}
        ),
        "Routes": resource("AWS::EC2::RouteTable", {"VpcId": ref("Vpc")}),
        "RoutesOfSubnet": resource(
            "AWS::EC2::SubnetRouteTableAssociation",
            {"SubnetId": ref("Subnet"), "RouteTableId": ref("Routes")},
        ),
        "S3": resource(
            "AWS::EC2::VPCEndpoint",
            {
                "VpcId": ref("Vpc"),
                "ServiceName": {"Fn::Sub": "com.amazonaws.${AWS::Region}.s3"},
                "RouteTableIds": [ref("Routes")],
            },
        ),
        "JobGroup": resource("AWS::EC2::SecurityGroup", {"VpcId": ref("Vpc")}),
        "FilesGroup": resource("AWS::EC2::SecurityGroup", {"VpcId": ref("Vpc")}),
        **{
            f"Efa{side}": rule(side, "JobGroup", "JobGroup", "-1") for side in ("Ingress", "Egress")
        },
        **{
            f"{of}To{peer}{side}{port}": rule(side, f"{of}Group", f"{peer}Group", "tcp", port)
            for of, peer in (("Job", "Files"), ("Files", "Job"), ("Files", "Files"))
            for side in ("Ingress", "Egress")
            for port in (988, 1018)
        },
        "Files": resource(
            "AWS::FSx::FileSystem",
            {
                "FileSystemType": "LUSTRE",
                "StorageCapacity": 4800,
                "SubnetIds": [ref("Subnet")],
                "SecurityGroupIds": [get("FilesGroup", "GroupId")],
                "LustreConfiguration": {"DeploymentType": "PERSISTENT_2"},
            },
            DeletionPolicy="Retain",
            DependsOn=[
                f"FilesToFiles{side}{port}"
                for side in ("Ingress", "Egress")
                for port in (988, 1018)
            ],
        ),
        "Export": resource(
            "AWS::FSx::DataRepositoryAssociation",
            {
                "FileSystemId": ref("Files"),
                "FileSystemPath": "/checkpoints",
                "S3": {"AutoExportPolicy": {"Events": ["NEW", "CHANGED"]}},
            },
        ),
        "Store": resource(
            "AWS::S3::Bucket",
            {
                "BucketEncryption": {
                    "ServerSideEncryptionConfiguration": [
                        {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}
                    ]
                },
                "PublicAccessBlockConfiguration": {
                    "BlockPublicAcls": True,
                    "BlockPublicPolicy": True,
                    "IgnorePublicAcls": True,
                    "RestrictPublicBuckets": True,
                },
                "LifecycleConfiguration": {
                    "Rules": [{"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}]
                },
            },
            DeletionPolicy="RetainExceptOnCreate",
        ),
        "StorePolicy": resource(
            "AWS::S3::BucketPolicy",
            {
                "Bucket": ref("Store"),
                "PolicyDocument": {
                    "Statement": [
                        {
                            "Effect": "Deny",
                            "Action": "s3:*",
                            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                        }
                    ]
                },
            },
        ),
        "TrainingRole": resource(
            "AWS::IAM::Role",
            {
                "AssumeRolePolicyDocument": {
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Action": "sts:AssumeRole",
                            "Principal": {"Service": "sagemaker.amazonaws.com"},
                            "Condition": {"ArnLike": {"aws:SourceArn": "arn:..."}},
                        }
                    ]
                }
            },
        ),
        "TrainingPolicy": policy("TrainingRole", "s3:GetObject"),
        "HandlerRole": resource("AWS::IAM::Role", {}),
        "HandlerPolicy": policy("HandlerRole", "sagemaker:StopTrainingJob"),
        "Handler": resource("AWS::Lambda::Function", {"Role": get("HandlerRole", "Arn")}),
        "Topic": resource("AWS::SNS::Topic", {}),
        "Failed": resource("AWS::CloudWatch::Alarm", {"Namespace": "AWS/Events", **alarm}),
        "NoProgress": resource(
            "AWS::CloudWatch::Alarm",
            {"Namespace": "CdkBlackwell", "MetricName": "StepAge", **alarm},
        ),
    }


def healthy(
    change: Callable[[dict[str, Body]], object] | None = None,
    *,
    change_request: Callable[[Body], object] | None = None,
) -> Body:
    """The template, after the given changes to its resources and to the request inside the run."""
    found = resources()
    body = request()
    if change_request:
        change_request(body)
    needs = [
        name
        for name, each in found.items()
        if each["Type"].startswith(("AWS::EC2::SecurityGroup", "AWS::IAM", "AWS::FSx"))
    ]
    definition = {"request": body, "checkpoint_bucket": ref("Store")}
    found[RUN] = resource(
        "Custom::CdkBlackwellRun",
        {"ServiceToken": get("Handler", "Arn"), "Definition": as_text(definition)},
        DependsOn=needs,
    )
    if change:
        change(found)
    return {"Resources": copy.deepcopy(found)}


def as_text(value: Any) -> Body:
    """JSON with intrinsic functions, as the CDK writes it."""
    intrinsics: list[Any] = []

    def mark(item: Any) -> Any:
        if isinstance(item, dict) and "Fn::Join" in item:
            return "".join(mark(part) for part in item["Fn::Join"][1])
        if isinstance(item, dict) and set(item) <= {"Ref", "Fn::GetAtt", "Fn::ImportValue"}:
            intrinsics.append(item)
            return "\x1e"
        if isinstance(item, dict):
            return {key: mark(each) for key, each in item.items()}
        return [mark(each) for each in item] if isinstance(item, list) else item

    parts = json.dumps(mark(value), ensure_ascii=False).replace("\\u001e", "\x1e").split("\x1e")
    joined = [parts[0]]
    for intrinsic, part in zip(intrinsics, parts[1:], strict=True):
        joined += [intrinsic, part]
    return {"Fn::Join": ["", joined]}


def templates(*bodies: Body) -> Templates:
    return Templates.of(*bodies)


def found(body: Body, *others: Body) -> dict[str, list[str]]:
    """Rule id to what it found."""
    result: dict[str, list[str]] = {}
    for broken in broken_rules(templates(body, *others)):
        result.setdefault(broken.rule.id, []).append(broken.finding.found)
    return result


def without(*names: str) -> Callable[[Resources], object]:
    def change(resources: Resources) -> None:
        for name in names:
            del resources[name]
        for each in resources.values():
            if isinstance(each.get("DependsOn"), list):
                each["DependsOn"] = [name for name in each["DependsOn"] if name not in names]

    return change


def member(*path: str, value: Any) -> Callable[[Body], object]:
    def change(request: Body) -> None:
        place = request
        for step in path[:-1]:
            place = place.setdefault(step, {})
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change
