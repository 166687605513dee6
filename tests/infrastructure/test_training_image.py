"""Images: AWS's own in every partition, and one's own, pinned."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import App, Environment, Fn, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecr_assets as ecr_assets

from cdk_blackwell import TrainingImage
from cdk_blackwell.compliance.aws_images import dlc_account

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.fixture
def stack() -> Stack:
    return Stack(App(), "Stack", env=Environment(region="us-west-2"))


def test_the_default_image_follows_region_and_partition(stack: Stack) -> None:
    image = TrainingImage.deep_learning_container(stack)
    resolved = stack.resolve(image.uri)
    assert resolved["Fn::Join"][1] == [
        "763104351884.dkr.ecr.us-west-2.",
        {"Ref": "AWS::URLSuffix"},
        "/pytorch:2.13-cu133-amzn2023-sagemaker",
    ]


def test_an_image_outside_ecr_needs_no_pull_right() -> None:
    image = TrainingImage.from_uri("registry.example/team/image:1")
    assert image.repository_arn is None
    assert image.outside_ecr


def test_an_image_known_only_at_deploy_could_not_be_pulled(stack: Stack) -> None:
    with pytest.raises(ValueError, match=r"use TrainingImage\.from_ecr_repository"):
        TrainingImage.from_uri(Fn.import_value("image"))
    parts = f"{Fn.import_value('account')}.dkr.ecr.us-west-2.amazonaws.com/train:1"
    assert TrainingImage.from_uri(parts).repository_arn
    given = TrainingImage(uri=Fn.import_value("image"), repository_arn=Fn.import_value("arn"))
    assert not given.outside_ecr


def test_an_image_that_is_built_with_the_app(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    built = ecr_assets.DockerImageAsset(stack, "Built", directory=str(tmp_path))
    with pytest.raises(ValueError, match="for a DockerImageAsset with its repository and"):
        TrainingImage.from_uri(built.image_uri)
    image = TrainingImage.from_ecr_repository(built.repository, built.image_tag)
    assert image.repository_arn == built.repository.repository_arn


@pytest.mark.parametrize("tag", ["", "a b", "-a", "a" * 129, "é"])
def test_fails_for_a_tag_that_is_none(stack: Stack, tag: str) -> None:
    repository = ecr.Repository.from_repository_name(stack, "Tagged", "train")
    with pytest.raises(ValueError, match=r"image tag .* is not usable"):
        TrainingImage.from_ecr_repository(repository, tag)


@pytest.mark.parametrize("uri", ["", "a b", "x" * 256])
def test_an_unusable_image_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match="1-255 characters"):
        TrainingImage.from_uri(uri)


@pytest.mark.parametrize(
    ("region", "account"),
    [
        ("us-west-2", "763104351884"),
        ("eu-central-1", "763104351884"),
        ("ap-east-1", "871362719292"),
        ("cn-north-1", "727897471807"),
        ("us-gov-west-1", "442386744353"),
        ("us-gov-east-1", "446045086412"),
        ("${Token[AWS.Region.4]}", "763104351884"),
    ],
)
def test_aws_keeps_its_images_in_the_regions_own_account(region: str, account: str) -> None:
    assert dlc_account(region) == account


def test_an_image_of_another_account_is_pinned_by_its_digest(stack: Stack) -> None:
    repository = ecr.Repository.from_repository_attributes(
        stack,
        "Repository",
        repository_arn="arn:aws:ecr:us-west-2:210987654321:repository/team/train",
        repository_name="team/train",
    )
    image = TrainingImage.from_ecr_repository(repository, DIGEST)
    resolved = stack.resolve(image.uri)["Fn::Join"][1]
    assert resolved[0] == "210987654321.dkr.ecr.us-west-2."
    assert resolved[-1] == f"/team/train@{DIGEST}"
    assert image.repository_arn == "arn:aws:ecr:us-west-2:210987654321:repository/team/train"


@pytest.mark.parametrize("digest", ["sha256:", "sha256:12", "sha256:" + "g" * 64])
def test_fails_for_a_digest_that_is_none(stack: Stack, digest: str) -> None:
    repository = ecr.Repository.from_repository_name(stack, "Repository", "train")
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        TrainingImage.from_ecr_repository(repository, digest)
