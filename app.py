#!/usr/bin/env python3
"""The CDK application: a foundation and one job per size tier, set by context values.

``stacks/settings.py`` lists the context keys. Expected mistakes end in one line and exit code 2,
what a rule or the plan refuses in 3; the CDK's command line turns both into its own 1.
"""

from __future__ import annotations

import sys

from aws_cdk import App, Environment

from cdk_blackwell.planning.contracts import EXIT_BAD_INPUT, EXIT_DOES_NOT_FIT, EXIT_DONE
from cdk_blackwell.planning.errors import DoesNotFitError
from stacks.foundation_stack import FoundationStack
from stacks.settings import Settings
from stacks.small_model_stack import SmallModelStack


def build(app: App) -> App:
    """Add the stacks to ``app``; ValueError says in one line what its context lacks."""
    settings = Settings.from_context(app.node.get_all_context())
    environment = Environment(account=settings.account, region=settings.region)
    foundation = FoundationStack(
        app,
        "FoundationStack",
        availability_zone=settings.availability_zone,
        storage_gib=settings.storage_gib,
        throughput_per_tib=settings.throughput_per_tib,
        env=environment,
        description="Shared network, file system and buckets for training on NVIDIA B200",
    )
    SmallModelStack(
        app,
        "SmallModelStack",
        foundation=foundation.foundation,
        model=settings.model_shape(),
        settings=settings,
        env=environment,
        description="Training job for a model of up to 7B parameters on NVIDIA B200",
    )
    return app


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
