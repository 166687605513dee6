"""What AWS and the way to it can say no with, in one line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from boto3.exceptions import RetriesExceededError
from botocore import exceptions

from cdk_blackwell.cli.errors import AwsRefusedError, CommandError

Explain = Callable[[Any], CommandError]

NO_PERMISSION: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthorizationError",
        "UnauthorizedOperation",
        "403",
    }
)
_BAD_CREDENTIALS: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        "AuthFailure",
        "InvalidToken",
        "MissingAuthenticationToken",
        "NotAuthorized",
        "RequestExpired",
        "TokenRefreshRequired",
    }
)
THROTTLED: Final = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "ProvisionedThroughputExceededException",
        "SlowDown",
    }
)
_BAD_ENDPOINT: Final = "Invalid endpoint: "
"""How botocore begins what it says of a URL from its configuration, as a bare ValueError."""
_LOG_IN: Final = "log in ('aws sso login' or 'aws configure'), or give another --profile"


def explain(error: BaseException) -> CommandError | None:
    """The expected mistake behind a botocore exception; None where it is none of these."""
    if isinstance(error, exceptions.ClientError):
        return _refusal(error)
    for kinds, text in _OTHERS:
        if isinstance(error, kinds):
            return text(error)
    if isinstance(error, ValueError) and str(error).startswith(_BAD_ENDPOINT):
        return CommandError(
            f"{_sentence(error)}: AWS_ENDPOINT_URL, or endpoint_url in the profile, is no address "
            "such as https://HOST; correct or unset it"
        )
    return None


def _refusal(error: exceptions.ClientError) -> CommandError:
    said = error.response.get("Error", {})
    code, message = str(said.get("Code", "")), str(said.get("Message", "")).strip()
    operation = error.operation_name
    if code in NO_PERMISSION:
        return AwsRefusedError(
            f"no permission for {operation}: {message} Ask for the right, or give another --profile"
        )
    if code in _BAD_CREDENTIALS:
        return AwsRefusedError(f"AWS does not accept the credentials ({code}): {_LOG_IN}")
    if code in THROTTLED:
        return AwsRefusedError(f"AWS throttles {operation} ({code}): wait a minute and try again")
    return AwsRefusedError(f"AWS refused {operation} ({code}): {message}")


def _no_credentials(error: Exception) -> CommandError:
    return AwsRefusedError(f"no usable AWS credentials: {_sentence(error)}; {_LOG_IN}")


def _no_profile(error: Exception) -> CommandError:
    return CommandError(f"{_sentence(error)}; 'aws configure list-profiles' lists what there is")


def _no_region(_error: Exception) -> CommandError:
    return CommandError("no AWS region is set: give --region or set AWS_DEFAULT_REGION")


def _bad_region(error: Exception) -> CommandError:
    return CommandError(f"{_sentence(error)}: give --region or AWS_DEFAULT_REGION as us-west-2")


def _no_connection(error: Exception) -> CommandError:
    return AwsRefusedError(
        f"AWS cannot be reached: {_sentence(error)}; check the network, a proxy and --region"
    )


def _bad_value(error: Exception) -> CommandError:
    return CommandError(f"a value is not one that AWS takes: {_sentence(error)}")


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


_OTHERS: Final[tuple[tuple[tuple[type[Exception], ...], Explain], ...]] = (
    (
        (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.CredentialRetrievalError,
            exceptions.SSOError,
            exceptions.TokenRetrievalError,
            exceptions.NoAuthTokenError,
            exceptions.RefreshWithMFAUnsupportedError,
            exceptions.InfiniteLoopConfigError,
            exceptions.InvalidConfigError,
        ),
        _no_credentials,
    ),
    ((exceptions.ProfileNotFound, exceptions.ConfigParseError), _no_profile),
    ((exceptions.NoRegionError,), _no_region),
    ((exceptions.InvalidRegionError,), _bad_region),
    (
        (
            exceptions.ConnectionError,
            exceptions.HTTPClientError,
            exceptions.IncompleteReadError,
            RetriesExceededError,
        ),
        _no_connection,
    ),
    ((exceptions.ParamValidationError,), _bad_value),
)
