"""Accounts that AWS's Deep Learning Containers are pulled from."""

from __future__ import annotations

from functools import cache
from typing import Final

from aws_cdk import Token, region_info

DEEP_LEARNING_CONTAINERS_ACCOUNT: Final = "763104351884"
"""In most regions; taken where the region is unknown."""
OTHER_ACCOUNTS: Final = {
    "us-gov-west-1": "442386744353",
    "us-gov-east-1": "446045086412",
}
"""Where the CDK's own table of regions (``region_info``) has no account."""


def images_account(region: str) -> str:
    """In ``region``, which may be a token."""
    if Token.is_unresolved(region):
        return DEEP_LEARNING_CONTAINERS_ACCOUNT
    known = region_info.RegionInfo.get(region).dlc_repository_account
    return known or OTHER_ACCOUNTS.get(region, DEEP_LEARNING_CONTAINERS_ACCOUNT)


@cache
def images_accounts() -> frozenset[str]:
    """In any region."""
    return frozenset(images_account(each.name) for each in region_info.RegionInfo.regions)
