"""Lustre needs its ports in both directions on both sides."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.security_groups import allows, groups_of
from cdk_blackwell.compliance.templates import Resource, Templates

PORTS = (988, 1018, 1023)


def check(templates: Templates) -> Iterator[Finding]:
    """A job's group and its file system's group that do not let Lustre through."""
    for request in training_requests(templates):
        jobs = request.groups(templates)
        for source in request.file_systems:
            file_system = templates.target(source.get("FileSystemId"), request.resource.template)
            servers = groups_of(templates, file_system, "SecurityGroupIds") if file_system else []
            if jobs and servers and len(jobs) == len(request.security_groups):
                yield from _missing(templates, jobs, servers)


def _missing(
    templates: Templates, jobs: list[Resource], servers: list[Resource]
) -> Iterator[Finding]:
    for of, peers, direction in (
        (jobs, servers, "egress"),
        (servers, jobs, "ingress"),
        (servers, jobs, "egress"),
        (jobs, servers, "ingress"),
    ):
        closed = [
            port
            for port in PORTS
            if not any(
                allows(templates, group, peer, direction=direction, port=port)
                for group in of
                for peer in peers
            )
        ]
        if closed:
            ports = ", ".join(map(str, closed))
            yield Finding(
                resource=of[0],
                found=f"no {direction} rule lets TCP {ports} through to {peers[0].logical_id}",
            )


RULE = Rule(
    id="LustrePorts",
    title="A job and its file system let Lustre through in both directions.",
    why=(
        "Lustre clients and servers open connections to each other on TCP 988 and 1018-1023; "
        "with one direction closed, mounting hangs and the job fails after minutes of paid "
        "waiting."
    ),
    fix=(
        "Open TCP 988 and 1018-1023 between the two groups, ingress and egress on both "
        "(JobSecurityGroup does)."
    ),
    severity="error",
    check=check,
)
