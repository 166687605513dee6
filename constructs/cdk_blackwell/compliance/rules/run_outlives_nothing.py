"""What a running job stands on goes after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cdk_blackwell.compliance.identities import policies_of
from cdk_blackwell.compliance.requests import RUN_TYPE, TrainingRequest, training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.security_groups import rule_resources
from cdk_blackwell.compliance.templates import Resource, Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Runs that CloudFormation may keep while it removes what the job stands on."""
    for request in training_requests(templates):
        run = request.resource
        if run.type != RUN_TYPE:
            continue
        loose = sorted(
            {
                need.logical_id
                for need in _needs(templates, request)
                if need.template is run.template and need.logical_id not in run.all_needs
            }
        )
        if loose:
            yield Finding(
                resource=run, found=f"it does not depend on {', '.join(loose)}", where="DependsOn"
            )


def _needs(templates: Templates, request: TrainingRequest) -> Iterator[Resource]:
    for group in request.groups(templates):
        yield group
        yield from rule_resources(templates, group)
    role = templates.target(request.find("RoleArn"), request.resource.template)
    if role is not None:
        yield role
        yield from policies_of(templates, role)
    for source in request.file_systems:
        file_system = templates.target(source.get("FileSystemId"), request.resource.template)
        for association in templates.resources("AWS::FSx::DataRepositoryAssociation"):
            owner = templates.target(association.find("FileSystemId"), association.template)
            if (
                file_system is not None
                and owner is file_system
                and _meet(association.find("FileSystemPath"), _below_mount(source))
            ):
                yield association


def _below_mount(source: Mapping[str, Any]) -> str | None:
    """The channel's folder on the file system, of ``/<mount name>/<path>``."""
    directory = source.get("DirectoryPath")
    if isinstance(directory, str):
        return "/" + "/".join(directory.split("/")[2:])
    if isinstance(directory, Mapping) and "Fn::Join" in directory:
        last = directory["Fn::Join"][1][-1]
        return last if isinstance(last, str) else None
    return None


def _meet(linked: Any, mounted: str | None) -> bool:
    """Whether one folder lies in the other; other jobs' associations do not matter."""
    if not isinstance(linked, str) or mounted is None:
        return False
    one, other = (f"{path.rstrip('/')}/" for path in (linked, mounted))
    return one.startswith(other) or other.startswith(one)


RULE = Rule(
    id="RunOutlivesNothing",
    title="A run depends on the role, rules and associations that its job needs.",
    why=(
        "On delete and on rollback CloudFormation removes in reverse order; what goes too "
        "early breaks the job while it saves its last checkpoint, or leaves interfaces that "
        "hold the network."
    ),
    fix="run.node.add_dependency(...) on the construct that holds them (TrainingJob does).",
    severity="error",
    check=check,
)
