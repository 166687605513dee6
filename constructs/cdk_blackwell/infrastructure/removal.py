"""What becomes of resources that hold data when their stack goes."""

from __future__ import annotations

from typing import Final

from aws_cdk import RemovalPolicy

KEPT: Final = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""Stays when its stack is deleted or it is replaced; goes when its own creation is rolled back.

Plain RETAIN would leave empty leftovers of every failed first deploy behind, billed and unowned.
"""
