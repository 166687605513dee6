#!/usr/bin/env python3
"""The CDK application: a foundation and one job per size tier, set by context values.

``stacks/settings.py`` lists the context keys. Expected mistakes end in one line and exit code 2,
what a rule or the plan refuses in 3; the CDK's command line turns both into its own 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from aws_cdk import App, Environment

from cdk_blackwell.infrastructure.network import check_availability_zone
from cdk_blackwell.planning.contracts import EXIT_BAD_INPUT, EXIT_DOES_NOT_FIT, EXIT_DONE, Tier
from cdk_blackwell.planning.errors import DoesNotFitError
from stacks.context import SettingsError
from stacks.foundation_stack import FoundationStack
from stacks.large_sharded_stack import LargeShardedStack
from stacks.mid_model_stack import MidModelStack
from stacks.settings import Settings
from stacks.small_model_stack import SmallModelStack

STACKS: Final[
    Mapping[Tier, type[SmallModelStack] | type[MidModelStack] | type[LargeShardedStack]]
] = {
    "small": SmallModelStack,
    "mid": MidModelStack,
    "large-sharded": LargeShardedStack,
}


def build(app: App) -> App:
    """Add the stacks to ``app``; ValueError says in one line what its context lacks."""
    settings = Settings.from_context(app.node.get_all_context())
    _check_zone(settings)
    environment = Environment(account=settings.account, region=settings.region)
    foundation = FoundationStack(
        app,
        "FoundationStack",
        availability_zone=settings.availability_zone,
        nat=settings.nat,
        storage_needs=settings.storage_needs(),
        storage_gib=settings.storage_gib,
        throughput_per_tib=settings.throughput_per_tib,
        env=environment,
        description="Shared network, file system and buckets for training on NVIDIA B200",
    )
    for tier in settings.tiers:
        STACKS[tier](
            app,
            STACKS[tier].__name__,
            foundation=foundation.foundation,
            settings=settings.jobs[tier],
            env=environment,
            description=f"Training job of the {tier} tier on NVIDIA B200",
        )
    return app


def _check_zone(settings: Settings) -> None:
    """SettingsError where the zone cannot be in the region that ``cdk`` deploys to."""
    zone, region = settings.availability_zone, os.environ.get("CDK_DEFAULT_REGION")
    if settings.region is None and zone and region:
        try:
            check_availability_zone(zone, region)
        except ValueError as error:
            raise SettingsError(f"context {error} (AWS_DEFAULT_REGION, or -c region=)") from error


def main() -> int:
    """Synthesise; returns the exit code."""
    try:
        app = build(App())
    except ValueError as error:
        print(f"cdk-blackwell: {error}", file=sys.stderr)
        return EXIT_DOES_NOT_FIT if isinstance(error, DoesNotFitError) else EXIT_BAD_INPUT
    app.synth()
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
