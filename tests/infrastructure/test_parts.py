"""Parts usable alone: what they accept, and what they refuse before AWS would."""

from __future__ import annotations

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk.assertions import Template

from cdk_blackwell import Capacity, TrainingImage, TrainingNetwork
from cdk_blackwell.infrastructure.endpoints import GATEWAY_ENDPOINTS, INTERFACE_ENDPOINTS
from cdk_blackwell.infrastructure.monitoring import metric_definitions
from cdk_blackwell.infrastructure.network import check_availability_zone
from cdk_blackwell.planning.metrics import METRICS


@pytest.fixture
def stack() -> Stack:
    return Stack(App(), "Stack", env=Environment(region="us-west-2"))


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-west-2b", "us-west-2"),
        ("us-gov-west-1a", "us-gov-west-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-dfw-2a", "us-east-1"),
        ("ap-southeast-2c", "${Token[AWS.Region.4]}"),
        ("${Token[AZ.4]}", "us-west-2"),
    ],
)
def test_zones_of_the_region_are_taken_and_tokens_not_judged(zone: str, region: str) -> None:
    assert check_availability_zone(zone, region) == zone


@pytest.mark.parametrize("zone", ["", "us-west-2", "usw2-az1", "us-west-2bb", "US-WEST-2B"])
def test_what_is_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="is not one: give a zone's name"):
        check_availability_zone(zone, "us-west-2")


@pytest.mark.parametrize(
    ("cidr", "reason"), [("10.0.0.0", "/32"), ("10.0.0.1/16", "host bits"), ("x", "IPv4")]
)
def test_an_address_range_must_hold_a_network(stack: Stack, cidr: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TrainingNetwork(stack, "Network", availability_zone="us-west-2b", cidr=cidr)


def test_the_subnet_takes_the_first_quarter(stack: Stack) -> None:
    TrainingNetwork(stack, "Network", availability_zone="us-west-2b", cidr="10.1.0.0/20")
    Template.from_stack(stack).has_resource_properties(
        "AWS::EC2::Subnet", {"CidrBlock": "10.1.0.0/22", "MapPublicIpOnLaunch": False}
    )


def test_every_endpoint_has_its_reason_and_its_resource(stack: Stack) -> None:
    TrainingNetwork(
        stack,
        "Network",
        availability_zone="us-west-2b",
        interface_endpoints=tuple(INTERFACE_ENDPOINTS),
    )
    endpoints = [*GATEWAY_ENDPOINTS, *INTERFACE_ENDPOINTS.values()]
    assert all(len(endpoint.why) > 20 for endpoint in endpoints)
    Template.from_stack(stack).resource_count_is("AWS::EC2::VPCEndpoint", len(endpoints))


def test_endpoints_that_are_billed_can_be_left_out(stack: Stack) -> None:
    TrainingNetwork(stack, "Network", availability_zone="us-west-2b", interface_endpoints=())
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::EC2::VPCEndpoint", len(GATEWAY_ENDPOINTS))


def test_an_unknown_endpoint_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match="'logs' is not offered: give some of codeartifact-api"):
        TrainingNetwork(
            stack, "Network", availability_zone="us-west-2b", interface_endpoints=("logs",)
        )


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, 64])
def test_a_training_plan_takes_powers_of_two(count: int) -> None:
    plan = Capacity.training_plan("arn:aws:sagemaker:us-west-2:123456789012:training-plan/p")
    plan.check(instance_count=count, region="us-west-2")


@pytest.mark.parametrize("count", [3, 6, 128])
def test_a_training_plan_refuses_other_counts(count: int) -> None:
    plan = Capacity.training_plan("arn:aws:sagemaker:us-west-2:123456789012:training-plan/p")
    with pytest.raises(ValueError, match=f"instance_count {count} .* 1, 2, 4, 8, 16, 32, 64"):
        plan.check(instance_count=count, region="us-west-2")


def test_waiting_is_bounded_as_sagemaker_bounds_it() -> None:
    assert Capacity.on_demand().max_pending_seconds == 43_200
    with pytest.raises(ValueError, match="1800 s"):
        Capacity.on_demand(max_pending=Duration.minutes(29))
    with pytest.raises(ValueError, match="2419200 s"):
        Capacity.on_demand(max_pending=Duration.days(29))


def test_the_default_image_follows_region_and_partition(stack: Stack) -> None:
    image = TrainingImage.deep_learning_container(stack)
    resolved = stack.resolve(image.uri)
    assert resolved["Fn::Join"][1] == [
        "763104351884.dkr.ecr.us-west-2.",
        {"Ref": "AWS::URLSuffix"},
        "/pytorch:2.13-cu133-amzn2023-sagemaker",
    ]


def test_an_image_outside_ecr_needs_no_pull_right() -> None:
    assert TrainingImage.from_uri("registry.example/team/image:1").repository_arn is None


@pytest.mark.parametrize("uri", ["", "a b", "x" * 256])
def test_an_unusable_image_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="1-255 characters"):
        TrainingImage.from_uri(uri)


def test_metric_definitions_are_the_table_within_sagemakers_limits() -> None:
    definitions = metric_definitions()
    assert [d["Name"] for d in definitions] == [m.name for m in METRICS]
    assert len(definitions) <= 40
    assert all(len(d["Regex"]) <= 500 for d in definitions)
