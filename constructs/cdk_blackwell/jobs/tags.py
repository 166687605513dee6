"""The tags of a training job: those its stack and constructs carry, known only at synth's end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsii
from aws_cdk import CfnResource, IStableStringProducer, Lazy, Stack, TagManager
from constructs import IValidation

MAXIMUM_TAGS: Final = 50
IDENTITY_TAGS: Final = 4
"""Set by the controller: job, run, attempt and stack."""
_RESERVED_PREFIX: Final = "aws:"
_PLACE: Final = "@@tags@@"


@jsii.implements(IStableStringProducer)
@jsii.implements(IValidation)
class _Tags:
    """``Tags.of(...)`` works by aspects, after every constructor, so tags are read when asked for.

    They are those of ``like``, a resource of the job that carries every tag that reaches the job.
    """

    def __init__(self, like: CfnResource, given: Sequence[Mapping[str, str]]) -> None:
        self._like = like
        self._given = {tag["Key"]: tag["Value"] for tag in given}

    def values(self) -> dict[str, str]:
        """By name, without AWS's own."""
        manager = TagManager.of(self._like)
        found = {
            **Stack.of(self._like).tags.tag_values(),
            **(manager.tag_values() if manager else {}),
            **self._given,
        }
        return {
            key: str(value)
            for key, value in sorted(found.items())
            if not key.startswith(_RESERVED_PREFIX)
        }

    def produce(self) -> str:
        """JSON."""
        tags = [{"Key": key, "Value": value} for key, value in self.values().items()]
        return json.dumps(tags, separators=(",", ":"))

    def validate(self) -> list[str]:
        """Too many tags would be refused at launch."""
        count, most = len(self.values()), MAXIMUM_TAGS - IDENTITY_TAGS
        if count <= most:
            return []
        return [
            f"the training job would carry {count} tags of its stack and constructs; SageMaker "
            f"takes {MAXIMUM_TAGS}, of which this library sets {IDENTITY_TAGS}: remove some"
        ]


def with_tags(definition: Mapping[str, Any], *, like: CfnResource) -> str:
    """``definition`` as JSON, its request's Tags joined by those that reach ``like``.

    json.dumps and not Stack.to_json_string: jsii would drop nulls and turn 1.0 into 1, and no token
    in here resolves to text that needs escaping.
    """
    request = definition["request"]
    tags = _Tags(like, request.get("Tags", ()))
    like.node.add_validation(tags)
    text = json.dumps({**definition, "request": {**request, "Tags": _PLACE}}, separators=(",", ":"))
    return text.replace(json.dumps(_PLACE), Lazy.string(tags))
