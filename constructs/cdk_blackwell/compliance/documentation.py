"""``docs/rules.md``, made from the rules: ``python -m cdk_blackwell.compliance.documentation``."""

from __future__ import annotations

from cdk_blackwell.compliance.rules import GROUPS, RULES

_INTRODUCTION = f"""\
# Rules

{len(RULES)} rules about training on SageMaker that no other tool checks, made from what goes wrong
with real jobs. They read templates, so they work on any stacks: on this library's jobs, and on
CreateTrainingJob requests inside Step Functions state machines. Add them to an app with

```python
from aws_cdk import Validations
from cdk_blackwell import TrainingRules

Validations.of(app).add_plugins(TrainingRules())
```

An **error** stops `cdk synth`; a **warning** is printed. Acknowledge one where it does not apply:

```python
from aws_cdk import Acknowledgment

Validations.of(job).acknowledge(
    Acknowledgment(id="cdk-blackwell::RetryStrategy", reason="the script cannot resume")
)
```

What the app does not make itself (an imported subnet, a request only known at run time) is passed
over. This page is generated: `python -m cdk_blackwell.compliance.documentation > docs/rules.md`.
"""


def document() -> str:
    """The page."""
    parts = [_INTRODUCTION]
    for heading, rules in GROUPS.items():
        parts.append(f"\n## {heading}\n")
        for rule in rules:
            parts.append(
                f"\n### {rule.id} ({rule.severity})\n\n"
                f"{rule.title}\n\n**Why:** {rule.why}\n\n**Do:** {rule.fix}\n"
            )
    return "".join(parts)


if __name__ == "__main__":
    print(document(), end="")
