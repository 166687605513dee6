"""How commands end: expected mistakes become one line and an exit code, never a traceback."""

from __future__ import annotations

from cdk_blackwell.deployed.errors import AwsRefusedError, CommandError, RefusedError
from cdk_blackwell.planning.contracts import EXIT_CHECK_FAILED

__all__ = ["AwsRefusedError", "CheckFailedError", "CommandError", "RefusedError"]


class CheckFailedError(CommandError):
    """A command did its work, but a check of the result failed: a defect, not a mistake."""

    exit_code = EXIT_CHECK_FAILED
