"""Resource types: what a template asks for is what the services then say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cdk_blackwell.local.aws import LocalAws

VPC: dict[str, Any] = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}}
SUBNET: dict[str, Any] = {
    "Type": "AWS::EC2::Subnet",
    "Properties": {
        "VpcId": {"Ref": "Vpc"},
        "CidrBlock": "10.0.0.0/24",
        "AvailabilityZone": "us-west-2b",
    },
}


def group(**properties: Any) -> dict[str, Any]:
    return {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"GroupDescription": "test", "VpcId": {"Ref": "Vpc"}, **properties},
    }


def test_inline_egress_replaces_the_rule_that_ec2_gives(aws: LocalAws, stacks: Any) -> None:
    https = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "CidrIp": "0.0.0.0/0"}
    efa = {
        "GroupId": {"Ref": "Group"},
        "IpProtocol": "-1",
        "DestinationSecurityGroupId": {"Fn::GetAtt": ["Group", "GroupId"]},
    }
    stack = stacks.create(
        "groups",
        {
            "Vpc": VPC,
            "Group": group(SecurityGroupEgress=[https]),
            "Self": {"Type": "AWS::EC2::SecurityGroupEgress", "Properties": efa},
        },
    )
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    name = stacks.physical_id("groups", "Group")
    described = aws.client("ec2").describe_security_groups(GroupIds=[name])["SecurityGroups"][0]
    rules = {
        (rule["IpProtocol"], rule.get("FromPort"), len(rule["UserIdGroupPairs"]))
        for rule in described["IpPermissionsEgress"]
    }
    assert rules == {("tcp", 443, 0), ("-1", None, 1)}
    assert stacks.delete("groups")["StackStatus"] == "DELETE_COMPLETE"


def test_an_unknown_zone_is_refused_with_ec2s_words(stacks: Any) -> None:
    subnet = {**SUBNET, "Properties": {**SUBNET["Properties"], "AvailabilityZone": "us-west-2x"}}
    stack = stacks.create("zone", {"Vpc": VPC, "Subnet": subnet})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    (reason,) = stacks.reasons(stack["StackId"])
    assert "us-west-2x" in reason
    assert "InvalidParameterValue" in reason


def test_a_whole_network_comes_and_goes(aws: LocalAws, stacks: Any) -> None:
    resources = {
        "Vpc": {
            **VPC,
            "Properties": {
                **VPC["Properties"],
                "EnableDnsHostnames": True,
                "EnableDnsSupport": True,
            },
        },
        "Subnet": SUBNET,
        "Gateway": {"Type": "AWS::EC2::InternetGateway"},
        "Attached": {
            "Type": "AWS::EC2::VPCGatewayAttachment",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "InternetGatewayId": {"Ref": "Gateway"}},
        },
        "Address": {"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}},
        "Nat": {
            "Type": "AWS::EC2::NatGateway",
            "Properties": {
                "SubnetId": {"Ref": "Subnet"},
                "AllocationId": {"Fn::GetAtt": ["Address", "AllocationId"]},
            },
        },
        "Table": {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}},
        "Default": {
            "Type": "AWS::EC2::Route",
            "Properties": {
                "RouteTableId": {"Ref": "Table"},
                "DestinationCidrBlock": "0.0.0.0/0",
                "NatGatewayId": {"Ref": "Nat"},
            },
        },
        "Association": {
            "Type": "AWS::EC2::SubnetRouteTableAssociation",
            "Properties": {"RouteTableId": {"Ref": "Table"}, "SubnetId": {"Ref": "Subnet"}},
        },
        "Storage": {
            "Type": "AWS::EC2::VPCEndpoint",
            "Properties": {
                "VpcId": {"Ref": "Vpc"},
                "ServiceName": "com.amazonaws.us-west-2.s3",
                "VpcEndpointType": "Gateway",
                "RouteTableIds": [{"Ref": "Table"}],
            },
        },
        "Group": group(),
        "Logs": {
            "Type": "AWS::EC2::VPCEndpoint",
            "Properties": {
                "VpcId": {"Ref": "Vpc"},
                "ServiceName": "com.amazonaws.us-west-2.logs",
                "VpcEndpointType": "Interface",
                "PrivateDnsEnabled": True,
                "SubnetIds": [{"Ref": "Subnet"}],
                "SecurityGroupIds": [{"Ref": "Group"}],
            },
        },
    }
    stack = stacks.create("network", resources)
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(stack["StackId"])
    ec2 = aws.client("ec2")
    vpc = stacks.physical_id("network", "Vpc")
    hostnames = ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")
    assert hostnames["EnableDnsHostnames"]["Value"] is True
    stack = stacks.delete("network")
    assert stack["StackStatus"] == "DELETE_COMPLETE", stacks.reasons(stack["StackId"])
    assert vpc not in [one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"]]
    assert ec2.describe_network_interfaces()["NetworkInterfaces"] == []


def test_a_bucket_keeps_its_settings(aws: LocalAws, stacks: Any) -> None:
    properties = {
        "VersioningConfiguration": {"Status": "Enabled"},
        "PublicAccessBlockConfiguration": {"BlockPublicAcls": True, "BlockPublicPolicy": True},
        "BucketEncryption": {
            "ServerSideEncryptionConfiguration": [
                {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}
            ]
        },
        "LifecycleConfiguration": {
            "Rules": [
                {
                    "Id": "old",
                    "Status": "Enabled",
                    "NoncurrentVersionExpiration": {"NoncurrentDays": 30},
                    "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
                }
            ]
        },
    }
    stacks.create("bucket", {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": properties}})
    s3, name = aws.client("s3"), stacks.physical_id("bucket", "Bucket")
    assert s3.get_bucket_versioning(Bucket=name)["Status"] == "Enabled"
    block = s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
    assert block["BlockPublicAcls"] is True
    rule = s3.get_bucket_lifecycle_configuration(Bucket=name)["Rules"][0]
    assert rule["NoncurrentVersionExpiration"]["NoncurrentDays"] == 30
    encryption = s3.get_bucket_encryption(Bucket=name)["ServerSideEncryptionConfiguration"]
    default = encryption["Rules"][0]["ApplyServerSideEncryptionByDefault"]
    assert default["SSEAlgorithm"] == "aws:kms"
    assert stacks.delete("bucket")["StackStatus"] == "DELETE_COMPLETE"


def test_a_policy_denies_all_but_what_it_says_about_tls(aws: LocalAws, stacks: Any) -> None:
    everything = {"Fn::Sub": "${Bucket.Arn}/*"}
    statements = [
        {
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": "s3:*",
            "Resource": everything,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
        {
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": "s3:DeleteObject",
            "Resource": everything,
        },
    ]
    stacks.create(
        "policy",
        {
            "Bucket": {"Type": "AWS::S3::Bucket"},
            "Policy": {
                "Type": "AWS::S3::BucketPolicy",
                "Properties": {
                    "Bucket": {"Ref": "Bucket"},
                    "PolicyDocument": {"Version": "2012-10-17", "Statement": statements},
                },
            },
        },
    )
    s3, name = aws.client("s3"), stacks.physical_id("policy", "Bucket")
    s3.put_object(Bucket=name, Key="a", Body=b"1")
    with pytest.raises(ClientError, match="403"):
        s3.delete_object(Bucket=name, Key="a")
    s3.delete_bucket_policy(Bucket=name)
    s3.delete_object(Bucket=name, Key="a")
    assert stacks.delete("policy")["StackStatus"] == "DELETE_COMPLETE"


def test_a_lustre_file_system_is_available_with_a_lasting_mount_name(
    aws: LocalAws, stacks: Any
) -> None:
    stack = stacks.create(
        "lustre",
        {
            "Vpc": VPC,
            "Subnet": SUBNET,
            "Bucket": {"Type": "AWS::S3::Bucket"},
            "System": {
                "Type": "AWS::FSx::FileSystem",
                "Properties": {
                    "FileSystemType": "LUSTRE",
                    "FileSystemTypeVersion": "2.15",
                    "StorageCapacity": 1200,
                    "SubnetIds": [{"Ref": "Subnet"}],
                    "LustreConfiguration": {
                        "DeploymentType": "PERSISTENT_2",
                        "PerUnitStorageThroughput": 125,
                    },
                },
            },
            "Link": {
                "Type": "AWS::FSx::DataRepositoryAssociation",
                "Properties": {
                    "FileSystemId": {"Ref": "System"},
                    "FileSystemPath": "/tokens",
                    "DataRepositoryPath": {"Fn::Sub": "s3://${Bucket}/tokens/"},
                    "S3": {"AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]}},
                },
            },
        },
        Outputs={"Mount": {"Value": {"Fn::GetAtt": ["System", "LustreMountName"]}}},
    )
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(stack["StackId"])
    fsx = aws.client("fsx")
    (system,) = fsx.describe_file_systems(FileSystemIds=[stacks.physical_id("lustre", "System")])[
        "FileSystems"
    ]
    assert system["Lifecycle"] == "AVAILABLE"
    assert system["VpcId"] == stacks.physical_id("lustre", "Vpc")
    assert system["LustreConfiguration"]["MountName"] == stack["Outputs"][0]["OutputValue"]
    (link,) = fsx.describe_data_repository_associations(
        Filters=[{"Name": "file-system-id", "Values": [system["FileSystemId"]]}]
    )["Associations"]
    assert link["FileSystemPath"] == "/tokens"
    assert stacks.delete("lustre")["StackStatus"] == "DELETE_COMPLETE"
    assert fsx.describe_data_repository_associations()["Associations"] == []


def test_messages_tables_alarms_and_roles(aws: LocalAws, stacks: Any) -> None:
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "lambda.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    document = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}],
    }
    queue_arn = {"Fn::GetAtt": ["Queue", "Arn"]}
    stack = stacks.create(
        "mixed",
        {
            "Key": {"Type": "AWS::KMS::Key", "Properties": {"EnableKeyRotation": True}},
            "Alias": {
                "Type": "AWS::KMS::Alias",
                "Properties": {"AliasName": "alias/mixed", "TargetKeyId": {"Ref": "Key"}},
            },
            "Role": {
                "Type": "AWS::IAM::Role",
                "Properties": {
                    "AssumeRolePolicyDocument": trust,
                    "ManagedPolicyArns": ["arn:aws:iam::aws:policy/ReadOnlyAccess"],
                },
            },
            "Policy": {
                "Type": "AWS::IAM::Policy",
                "Properties": {
                    "PolicyName": "read",
                    "PolicyDocument": document,
                    "Roles": [{"Ref": "Role"}],
                },
            },
            "Managed": {
                "Type": "AWS::IAM::ManagedPolicy",
                "Properties": {"PolicyDocument": document, "Roles": [{"Ref": "Role"}]},
            },
            "Queue": {
                "Type": "AWS::SQS::Queue",
                "Properties": {"MessageRetentionPeriod": 1209600, "SqsManagedSseEnabled": True},
            },
            "QueuePolicy": {
                "Type": "AWS::SQS::QueuePolicy",
                "Properties": {"Queues": [{"Ref": "Queue"}], "PolicyDocument": document},
            },
            "Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": "Runs"}},
            "TopicPolicy": {
                "Type": "AWS::SNS::TopicPolicy",
                "Properties": {"Topics": [{"Ref": "Topic"}], "PolicyDocument": document},
            },
            "Subscription": {
                "Type": "AWS::SNS::Subscription",
                "Properties": {
                    "TopicArn": {"Ref": "Topic"},
                    "Protocol": "sqs",
                    "Endpoint": queue_arn,
                },
            },
            "Table": {
                "Type": "AWS::DynamoDB::Table",
                "Properties": {
                    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
                    "BillingMode": "PAY_PER_REQUEST",
                },
            },
            "Global": {
                "Type": "AWS::DynamoDB::GlobalTable",
                "Properties": {
                    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
                    "BillingMode": "PAY_PER_REQUEST",
                    "Replicas": [{"Region": {"Ref": "AWS::Region"}}],
                },
            },
            "Log": {"Type": "AWS::Logs::LogGroup", "Properties": {"RetentionInDays": 90}},
            "Alarm": {
                "Type": "AWS::CloudWatch::Alarm",
                "Properties": {
                    "ComparisonOperator": "GreaterThanThreshold",
                    "EvaluationPeriods": 1,
                    "MetricName": "Lost",
                    "Namespace": "Test",
                    "Period": 300,
                    "Statistic": "Maximum",
                    "Threshold": 0,
                    "AlarmActions": [{"Ref": "Topic"}],
                },
            },
            "Dashboard": {
                "Type": "AWS::CloudWatch::Dashboard",
                "Properties": {"DashboardBody": json.dumps({"widgets": []})},
            },
        },
    )
    assert stack["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(stack["StackId"])
    role, key = (stacks.physical_id("mixed", name) for name in ("Role", "Key"))
    attached = aws.client("iam").list_attached_role_policies(RoleName=role)["AttachedPolicies"]
    assert len(attached) == 2
    aws.client("sns").publish(TopicArn=stacks.physical_id("mixed", "Topic"), Message="hello")
    received = aws.client("sqs").receive_message(QueueUrl=stacks.physical_id("mixed", "Queue"))
    assert json.loads(received["Messages"][0]["Body"])["Message"] == "hello"
    stack = stacks.delete("mixed")
    assert stack["StackStatus"] == "DELETE_COMPLETE", stacks.reasons(stack["StackId"])
    assert aws.client("kms").describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == "PendingDeletion"
