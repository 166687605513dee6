"""Accounts that AWS's Deep Learning Containers are pulled from."""

from __future__ import annotations

from functools import cache
from typing import Final

from aws_cdk import Token, region_info

DEEP_LEARNING_CONTAINERS_ACCOUNT: Final = "763104351884"
"""In most regions; taken where the region is unknown."""
_GOVCLOUD_ACCOUNTS: Final = {
    "us-gov-west-1": "442386744353",
    "us-gov-east-1": "446045086412",
}
"""Where the CDK's own table of regions (``region_info``) has no account."""


def dlc_account(region: str) -> str:
    """Account of the Deep Learning Containers in ``region``; of most regions for a token."""
    if Token.is_unresolved(region):
        return DEEP_LEARNING_CONTAINERS_ACCOUNT
    known = region_info.RegionInfo.get(region).dlc_repository_account
    return known or _GOVCLOUD_ACCOUNTS.get(region, DEEP_LEARNING_CONTAINERS_ACCOUNT)


@cache
def dlc_accounts() -> frozenset[str]:
    """Those of all regions that the CDK knows."""
    return frozenset(dlc_account(each.name) for each in region_info.RegionInfo.regions)
