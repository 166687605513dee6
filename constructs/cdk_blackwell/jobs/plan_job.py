"""The plan of a job: as any plan, but a trial that is given has to be a trial of this job."""

from __future__ import annotations

from typing import Any

from cdk_blackwell.planning.following import check_followed
from cdk_blackwell.planning.plan import Plan, make_plan
from cdk_blackwell.planning.request import Request


def plan_job(**asked: Any) -> Plan:
    """``make_plan`` with the same arguments.

    PlanError, too, where ``measured`` is of another model, size or recipe: who passes a trial to a
    job means to train with its winner, and a study of what differs is ``cdk-blackwell plan``'s.
    """
    check_followed(Request(**asked))
    return make_plan(**asked)
