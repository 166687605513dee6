"""How a launch can fail, told apart because each asks for something else."""

from __future__ import annotations

from typing import Any, Final


class LaunchRefused(Exception):  # noqa: N818 - an answer, not a defect
    """No job exists and none will: the message says why and what to do."""


class AccessRefused(LaunchRefused):
    """A permission is missing, or was granted so recently that it is not seen yet."""


class LaunchDelayed(Exception):  # noqa: N818
    """No job exists yet, for a reason that passes: the message says which."""


class LaunchUnwanted(Exception):  # noqa: N818
    """No job exists, and none should: the run was stopped, or its claim is somebody else's now."""


class LaunchUnknown(Exception):  # noqa: N818
    """SageMaker did not say whether it accepted; the claim stays until a describe tells."""


ACCESS_REFUSED: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "403",
        "Forbidden",
        "UnauthorizedOperation",
        "AuthorizationError",
    }
)
"""Error codes of a missing permission; EC2 and SNS have words of their own."""


def error_code(error: Any) -> str:
    """AWS's error code of a botocore ClientError."""
    return str(error.response.get("Error", {}).get("Code", ""))


def error_message(error: Any) -> str:
    """AWS's words of a botocore ClientError."""
    return str(error.response.get("Error", {}).get("Message", "")) or str(error)


def http_status(error: Any) -> int:
    """HTTP status of a botocore ClientError, 0 when unknown."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
