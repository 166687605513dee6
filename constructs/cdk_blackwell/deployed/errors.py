"""Expected mistakes with deployed jobs, each with the code the command line ends with."""

from __future__ import annotations

from cdk_blackwell.planning.contracts import (
    EXIT_AWS_REFUSED,
    EXIT_BAD_INPUT,
    EXIT_DOES_NOT_FIT,
)


class CommandError(Exception):
    """An expected mistake: what was given, what is allowed, what to do."""

    exit_code = EXIT_BAD_INPUT


class RefusedError(CommandError):
    """A well-formed wish that a rule refuses: memory, a tier's limits or a cost ceiling."""

    exit_code = EXIT_DOES_NOT_FIT


class AwsRefusedError(CommandError):
    """AWS (or the embedded one) said no, or a deployment failed."""

    exit_code = EXIT_AWS_REFUSED
