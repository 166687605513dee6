"""Network interfaces that keep a job's security group undeletable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from cdk_blackwell.lifecycle.handler.definition import JobDefinition

_STACK_TAG: Final = "aws:cloudformation:stack-id"
"""CloudFormation's own tag on every security group it creates."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """EC2's view."""

    ec2: Any

    def interfaces(self, definitions: Iterable[JobDefinition], stack_id: str) -> tuple[str, ...]:
        """Ids of the interfaces in the jobs' security groups that ``stack_id`` created.

        Groups given from outside are shared with others and are none of our business.
        """
        named = {
            group
            for definition in definitions
            for group in definition.request.get("VpcConfig", {}).get("SecurityGroupIds", ())
        }
        if not named:
            return ()
        pages = self.ec2.get_paginator("describe_security_groups").paginate(
            Filters=[
                {"Name": "group-id", "Values": sorted(named)},
                {"Name": f"tag:{_STACK_TAG}", "Values": [stack_id]},
            ]
        )
        owned = sorted(group["GroupId"] for page in pages for group in page["SecurityGroups"])
        if not owned:
            return ()
        pages = self.ec2.get_paginator("describe_network_interfaces").paginate(
            Filters=[{"Name": "group-id", "Values": owned}]
        )
        return tuple(
            interface["NetworkInterfaceId"]
            for page in pages
            for interface in page["NetworkInterfaces"]
        )
