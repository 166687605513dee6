"""An index the container installs the locked packages from, in place of wheels that travel."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aws_cdk import Aws, Stack, Token
from aws_cdk import aws_iam as iam

from cdk_blackwell.planning.contracts import CODE_ARTIFACT_INDEX, DEFAULT_INDEX

_DOMAIN: Final = re.compile(r"[a-z][a-z0-9-]{0,48}[a-z0-9]")
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,99}")
_ACCOUNT: Final = re.compile(r"\d{12}")


@dataclass(frozen=True, kw_only=True)
class PackageIndex:
    """Made by ``default`` or ``code_artifact``. Whichever it is, only packages whose hashes the
    bundle's lock names are installed.
    """

    domain: str | None = None
    """Of CodeArtifact; None for the index that the image's pip is set up for."""
    repository: str | None = None
    domain_owner: str | None = None
    """Account of the domain; None for the stack's."""

    @classmethod
    def default(cls) -> PackageIndex:
        """The index that the image's pip is set up for; the subnet needs a way to it, as by NAT."""
        return cls()

    @classmethod
    def code_artifact(
        cls, *, domain: str, repository: str, domain_owner: str | None = None
    ) -> PackageIndex:
        """A CodeArtifact repository of Python packages in the job's region.

        Without NAT the network needs the endpoints ``codeartifact-api`` and
        ``codeartifact-repositories``, and ``sts`` for the token.

        :param domain: 2 to 50 small letters, digits and hyphens.
        :param repository: of that domain, 2 to 100 characters.
        :param domain_owner: account of the domain. Default: the stack's.

        ValueError for a name that CodeArtifact does not take.
        """
        for name, value, pattern in (
            ("domain", domain, _DOMAIN),
            ("repository", repository, _REPOSITORY),
            ("domain_owner", domain_owner, _ACCOUNT),
        ):
            given = value is not None and not Token.is_unresolved(value)
            if given and not pattern.fullmatch(str(value)):
                raise ValueError(
                    f"CodeArtifact {name} {value!r} is not usable: it must match {pattern.pattern}"
                )
        return cls(domain=domain, repository=repository, domain_owner=domain_owner)

    def environment_value(self, account: str) -> str:
        """What the launcher in the container reads; ``account`` is the stack's."""
        if self.domain is None:
            return DEFAULT_INDEX
        owner = self.domain_owner or account
        return ":".join((CODE_ARTIFACT_INDEX, self.domain, owner, str(self.repository)))

    def statements(self, stack: Stack) -> list[iam.PolicyStatement]:
        """What the training role needs in the region of ``stack``; nothing for ``default``."""
        if self.domain is None:
            return []
        place = (
            f"arn:{Aws.PARTITION}:codeartifact:{stack.region}:{self.domain_owner or stack.account}"
        )
        return [
            iam.PolicyStatement(
                sid="PackageToken",
                actions=["codeartifact:GetAuthorizationToken"],
                resources=[f"{place}:domain/{self.domain}"],
            ),
            iam.PolicyStatement(
                sid="Packages",
                actions=["codeartifact:GetRepositoryEndpoint", "codeartifact:ReadFromRepository"],
                resources=[f"{place}:repository/{self.domain}/{self.repository}"],
            ),
            # STS knows no resource for it; the condition lets it be used for CodeArtifact alone.
            iam.PolicyStatement(
                sid="PackageBearer",
                actions=["sts:GetServiceBearerToken"],
                resources=["*"],
                conditions={"StringEquals": {"sts:AWSServiceName": "codeartifact.amazonaws.com"}},
            ),
        ]
