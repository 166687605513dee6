"""Network interfaces that keep a job's security group undeletable."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from cdk_blackwell.lifecycle.handler.definition import JobDefinition

_STACK_TAG: Final = "aws:cloudformation:stack-id"
"""CloudFormation's own tag on every security group it creates."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """EC2's view."""

    ec2: Any

    def interfaces(
        self, definitions: Iterable[JobDefinition], stack_id: str, job_names: Collection[str]
    ) -> tuple[str, ...]:
        """Ids of the interfaces in the jobs' security groups that are these jobs' own.

        In a group that ``stack_id`` created every interface is. A group given from outside is
        shared with others: there an interface counts only where its description or a tag names one
        of ``job_names``. SageMaker does not document what it writes there; an interface that names
        no job is not waited for, and the group outlives the stack anyhow.
        """
        named = {
            group
            for definition in definitions
            for group in definition.request.get("VpcConfig", {}).get("SecurityGroupIds", ())
        }
        if not named:
            return ()
        owned = self._created_by(stack_id, named)
        pages = self.ec2.get_paginator("describe_network_interfaces").paginate(
            Filters=[{"Name": "group-id", "Values": sorted(named)}]
        )
        return tuple(
            interface["NetworkInterfaceId"]
            for page in pages
            for interface in page["NetworkInterfaces"]
            if not owned.isdisjoint(group["GroupId"] for group in interface["Groups"])
            or _names(interface, job_names)
        )

    def _created_by(self, stack_id: str, groups: Collection[str]) -> set[str]:
        pages = self.ec2.get_paginator("describe_security_groups").paginate(
            Filters=[
                {"Name": "group-id", "Values": sorted(groups)},
                {"Name": f"tag:{_STACK_TAG}", "Values": [stack_id]},
            ]
        )
        return {group["GroupId"] for page in pages for group in page["SecurityGroups"]}


def _names(interface: dict[str, Any], job_names: Collection[str]) -> bool:
    """Whether the interface says that it belongs to one of these jobs."""
    texts = [interface.get("Description", "")]
    texts += [tag.get("Value", "") for tag in interface.get("TagSet", ())]
    words = {word for text in texts for word in _words(text)}
    return not words.isdisjoint(job_names)


def _words(text: str) -> list[str]:
    """Job names are letters, digits and hyphens; whatever else surrounds them ends a word."""
    return "".join(c if c.isalnum() or c == "-" else " " for c in text).split()
