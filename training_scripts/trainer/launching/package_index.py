"""Which index pip installs from, where the job names one in place of the bundle's wheels."""

from __future__ import annotations

from urllib.parse import urlsplit

from cdk_blackwell.planning.contracts import CODE_ARTIFACT_INDEX, DEFAULT_INDEX
from trainer.launching.cluster import LaunchError


def pip_environment(index: str) -> dict[str, str]:
    """Variables for pip; a token is never on a command line, where every process can read it.

    ``index`` is ``default``, for the index pip is set up for, or
    ``codeartifact:<domain>:<owner>:<repository>``.
    """
    if index == DEFAULT_INDEX:
        return {}
    kind, *parts = index.split(":")
    if kind != CODE_ARTIFACT_INDEX or len(parts) != 3:
        raise LaunchError(
            "user",
            f"the package index {index!r} is unknown: {DEFAULT_INDEX} or "
            f"{CODE_ARTIFACT_INDEX}:<domain>:<owner>:<repository> is expected",
        )
    return {"PIP_INDEX_URL": _code_artifact_url(*parts)}


def _code_artifact_url(domain: str, owner: str, repository: str) -> str:
    # Only jobs with such an index need boto3 before the packages are there; AWS's images have it.
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client = boto3.client("codeartifact")
        token = client.get_authorization_token(domain=domain, domainOwner=owner)
        endpoint = client.get_repository_endpoint(
            domain=domain, domainOwner=owner, repository=repository, format="pypi"
        )
    except (BotoCoreError, ClientError) as error:
        raise LaunchError(
            "user",
            f"CodeArtifact repository {domain}/{repository} of account {owner} cannot be used: "
            f"{error}. The network needs its endpoints, or NAT, and the training role its rights.",
        ) from error
    url = urlsplit(endpoint["repositoryEndpoint"])
    path = f"{url.path.rstrip('/')}/simple/"
    return f"{url.scheme}://aws:{token['authorizationToken']}@{url.netloc}{path}"
