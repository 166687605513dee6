"""SmallModelStack: the job's network, its rights, and what must outlive its run."""

from __future__ import annotations

import json
from typing import Any

JOB = "SmallModelStack-Train"


def only(template: Any, kind: str) -> tuple[str, dict[str, Any]]:
    ((name, resource),) = template.find_resources(kind).items()
    return name, resource


def rules(template: Any, kind: str) -> list[dict[str, Any]]:
    return [resource["Properties"] for resource in template.find_resources(kind).values()]


def statements(template: Any, name_part: str) -> list[dict[str, Any]]:
    (policy,) = (
        resource
        for name, resource in template.find_resources("AWS::IAM::Policy").items()
        if name_part in name
    )
    found = policy["Properties"]["PolicyDocument"]["Statement"]
    assert isinstance(found, list)
    return found


def test_efa_may_pass_from_and_to_the_job_itself(default: Any) -> None:
    """gardener-extension-provider-aws#1832: without self egress the EFA handshake fails."""
    group, _ = only(default.job, "AWS::EC2::SecurityGroup")
    itself = {"Fn::GetAtt": [group, "GroupId"]}
    for kind, peer in (
        ("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ):
        (rule,) = (r for r in rules(default.job, kind) if r["IpProtocol"] == "-1")
        assert rule["GroupId"] == itself
        assert rule[peer] == itself


def test_lustre_may_pass_both_ways_between_job_and_file_system(default: Any) -> None:
    group, _ = only(default.job, "AWS::EC2::SecurityGroup")
    job = json.dumps({"Fn::GetAtt": [group, "GroupId"]})
    for kind, peer in (
        ("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ):
        lustre = [r for r in rules(default.job, kind) if r["IpProtocol"] == "tcp"]
        for side in (True, False):
            ports = sorted(
                (r["FromPort"], r["ToPort"])
                for r in lustre
                if (json.dumps(r["GroupId"]) == job) is side
                and (json.dumps(r[peer]) == job) is not side
            )
            assert ports == [(988, 988), (1018, 1023)]


def test_beside_that_only_tls_leaves_the_job(default: Any) -> None:
    _, group = only(default.job, "AWS::EC2::SecurityGroup")
    (egress,) = group["Properties"]["SecurityGroupEgress"]
    assert (egress["CidrIp"], egress["FromPort"], egress["ToPort"]) == ("0.0.0.0/0", 443, 443)
    assert "SecurityGroupIngress" not in group["Properties"]


def test_the_run_outlives_nothing_it_needs(default: Any) -> None:
    _, run = only(default.job, "Custom::CdkBlackwellRun")
    needed = set()
    for kind in (
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::IAM::Role",
        "AWS::IAM::Policy",
        "AWS::SNS::Topic",
        "AWS::SNS::TopicPolicy",
        "AWS::Events::Rule",
        "AWS::Lambda::Function",
        "AWS::Lambda::Permission",
        "AWS::DynamoDB::Table",
        "AWS::SQS::Queue",
        "AWS::SQS::QueuePolicy",
        "AWS::CloudWatch::Alarm",
    ):
        needed |= set(default.job.find_resources(kind))
    assert needed <= set(run["DependsOn"])
    assert "FoundationStack" in json.dumps(
        json.loads((default.folder / "manifest.json").read_text())["artifacts"]["SmallModelStack"][
            "dependencies"
        ]
    )


def test_the_dependencies_are_the_same_with_and_without_a_run(default: Any, demo: Any) -> None:
    _, defined = only(default.job, "Custom::CdkBlackwellRun")
    _, launched = only(demo.job, "Custom::CdkBlackwellRun")
    assert defined["DependsOn"] == launched["DependsOn"]


def test_nothing_is_launched_unless_a_run_is_named(default: Any, demo: Any) -> None:
    _, defined = only(default.job, "Custom::CdkBlackwellRun")
    _, launched = only(demo.job, "Custom::CdkBlackwellRun")
    assert "RunId" not in defined["Properties"]
    assert launched["Properties"]["RunId"] == "demo-1"
    assert set(launched["Properties"]) == {
        "ServiceToken",
        "ServiceTimeout",
        "Definition",
        "RunId",
    }


def test_the_controller_is_small_patient_and_watched(default: Any) -> None:
    _, function = only(default.job, "AWS::Lambda::Function")
    properties = function["Properties"]
    assert properties["Runtime"] == "python3.13"
    assert properties["Architectures"] == ["arm64"]
    assert properties["Timeout"] == 900
    assert properties["MemorySize"] == 512
    assert properties["Handler"] == "cdk_blackwell.lifecycle.handler.main.handler"
    queue, _ = only(default.job, "AWS::SQS::Queue")
    assert properties["DeadLetterConfig"] == {"TargetArn": {"Fn::GetAtt": [queue, "Arn"]}}
    variables = properties["Environment"]["Variables"]
    assert set(variables) == {"CDKB_STACK_ID", "CDKB_TABLE", "CDKB_TOPIC", "AWS_DATA_PATH"}
    assert variables["CDKB_STACK_ID"] == {"Ref": "AWS::StackId"}
    _, table = only(default.job, "AWS::DynamoDB::Table")
    assert table["Properties"]["BillingMode"] == "PAY_PER_REQUEST"
    assert table["Properties"]["PointInTimeRecoverySpecification"] == {
        "PointInTimeRecoveryEnabled": True
    }
    assert [key["AttributeName"] for key in table["Properties"]["KeySchema"]] == ["pk", "sk"]


def test_every_status_reaches_the_controller_exactly_once(default: Any) -> None:
    patterns = [
        rule["Properties"]["EventPattern"]["detail"]
        for rule in default.job.find_resources("AWS::Events::Rule").values()
        if "EventPattern" in rule["Properties"]
    ]
    assert all(p["TrainingJobName"] == [{"prefix": f"{JOB}-"}] for p in patterns)
    statuses = [status for p in patterns for status in p["TrainingJobStatus"]]
    assert sorted(statuses) == ["Completed", "Failed", "InProgress", "Stopped", "Stopping"]


def test_events_that_were_missed_are_found_within_five_minutes(default: Any) -> None:
    default.job.has_resource_properties(
        "AWS::Events::Rule", {"ScheduleExpression": "rate(5 minutes)"}
    )


def test_failed_attempts_and_lost_events_are_told_whatever_the_controller_does(
    default: Any,
) -> None:
    alarms = rules(default.job, "AWS::CloudWatch::Alarm")
    topic, _ = only(default.job, "AWS::SNS::Topic")
    assert all(a["AlarmActions"] == [{"Ref": topic}] for a in alarms)
    others = {a["Namespace"]: a for a in alarms if a.get("Namespace", "CdkBlackwell")[:3] == "AWS"}
    assert set(others) == {"AWS/Events", "AWS/SQS"}
    name = others["AWS/Events"]["Dimensions"][0]["Value"]["Ref"]
    rule = default.job.find_resources("AWS::Events::Rule")[name]
    assert rule["Properties"]["EventPattern"]["detail"]["TrainingJobStatus"] == ["Failed"]


def test_the_dashboard_is_this_jobs_and_shows_every_alarm(default: Any) -> None:
    _, dashboard = only(default.job, "AWS::CloudWatch::Dashboard")
    # Named by CloudFormation: two stacks never write to one dashboard.
    assert "DashboardName" not in dashboard["Properties"]
    parts = dashboard["Properties"]["DashboardBody"]["Fn::Join"][1]
    body = json.loads("".join(part if isinstance(part, str) else "token" for part in parts))
    jobs = {
        metric[3]
        for widget in body["widgets"]
        for metric in widget["properties"].get("metrics", [])
        if metric[0] == "CdkBlackwell"
    }
    assert jobs == {JOB}
    (alarms,) = (w for w in body["widgets"] if w["type"] == "alarm")
    assert len(alarms["properties"]["alarms"]) == len(rules(default.job, "AWS::CloudWatch::Alarm"))
    (events,) = (w for w in body["widgets"] if w["type"] == "log")
    assert '"cdk_blackwell": "event"' in events["properties"]["query"]
    assert "SmallModelStack-Train-[0-9a-f]{8}-" in events["properties"]["query"]


def test_the_training_role_reaches_only_its_own_runs(default: Any) -> None:
    for statement in statements(default.job, "TrainingRolePolicy"):
        for action in (a for a in _actions(statement) if a.startswith("s3:")):
            resources = json.dumps(statement["Resource"])
            if action in ("s3:ListBucket", "s3:GetBucketLocation"):
                continue
            assert f"/{JOB}/runs/*" in resources


def test_wildcard_resources_are_those_aws_cannot_narrow(default: Any) -> None:
    everywhere = {
        action
        for name in ("TrainingRolePolicy", "ControllerPolicy")
        for statement in statements(default.job, name)
        if statement["Resource"] == "*"
        for action in _actions(statement)
    }
    assert everywhere == {
        "cloudwatch:GetMetricData",
        "cloudwatch:PutMetricData",
        "ec2:DeleteNetworkInterfacePermission",
        "ec2:DescribeDhcpOptions",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
        "ec2:DescribeVpcs",
        "ecr:GetAuthorizationToken",
    }


def test_interfaces_are_created_in_the_jobs_own_subnet_and_group(default: Any) -> None:
    (create,) = (
        s
        for s in statements(default.job, "TrainingRolePolicy")
        if "ec2:CreateNetworkInterface" in _actions(s)
    )
    text = json.dumps(create["Resource"])
    group, _ = only(default.job, "AWS::EC2::SecurityGroup")
    assert group in text
    assert ":subnet/" in text
    assert "subnet/*" not in text


def test_nothing_unverified_stands_between_sagemaker_and_its_interfaces(default: Any) -> None:
    """A condition on a key that EC2 does not fill in would refuse every launch."""
    for statement in statements(default.job, "TrainingRolePolicy"):
        if any("NetworkInterface" in action for action in _actions(statement)):
            assert all(name.endswith("IfExists") for name in statement.get("Condition", {}))


def test_only_sagemaker_for_this_accounts_training_jobs_takes_the_training_role(
    default: Any,
) -> None:
    (trust,) = (
        statement
        for name, role in default.job.find_resources("AWS::IAM::Role").items()
        if "TrainingRole" in name
        for statement in role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    )
    assert trust["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    arn = "".join(
        part if isinstance(part, str) else part["Ref"]
        for part in trust["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::Join"][1]
    )
    assert arn == ("arn:AWS::Partition:sagemaker:AWS::Region:AWS::AccountId:training-job/*")


def test_the_key_that_encrypts_the_export_may_be_used_as_sagemaker_asks(default: Any) -> None:
    """CreateTrainingJob with OutputDataConfig.KmsKeyId wants kms:Encrypt of the role."""
    allowed = {
        action
        for statement in statements(default.job, "TrainingRolePolicy")
        if "StorageKey" in json.dumps(statement["Resource"])
        for action in _actions(statement)
    }
    assert allowed == {"kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"}


def test_the_controller_may_pass_one_role_to_sagemaker_only(default: Any) -> None:
    (pass_role,) = (
        s for s in statements(default.job, "ControllerPolicy") if "iam:PassRole" in _actions(s)
    )
    assert pass_role["Condition"] == {
        "StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}
    }
    assert pass_role["Resource"]["Fn::GetAtt"][0].startswith("TrainTrainingRole")


def test_one_output_tells_the_command_line_everything(default: Any) -> None:
    outputs = {
        name: value
        for name, value in default.job.to_json()["Outputs"].items()
        if name.startswith("CdkBlackwell")
    }
    ((name, output),) = outputs.items()
    assert name == "CdkBlackwellSmallModelStackTrain"
    text = "".join(
        part if isinstance(part, str) else "token" for part in output["Value"]["Fn::Join"][1]
    )
    assert json.loads(text) == {
        "controller": "token",
        "job": JOB,
        "tier": "small",
        "checkpoint_bucket": "token",
        "dataset_bucket": "token",
        "topic": "token",
        "table": "token",
        "dashboard": "token",
    }


def _actions(statement: dict[str, Any]) -> list[str]:
    action = statement["Action"]
    return [action] if isinstance(action, str) else list(action)
