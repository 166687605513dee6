"""What the tests of your own stacks need: the request of a job, its plan, and the rules.

```python
from cdk_blackwell.testing import assert_compliant, assert_fits, plans, rendered_request

def test_pretraining() -> None:
    app = App()
    stack = MyStack(app, "MyStack")
    assert rendered_request(stack, stack.job)["ResourceConfig"]["InstanceCount"] == 4
    assert_fits(stack.job, headroom_gib=8)
    assert all(plan.throughput.mfu > 0.3 for plan in plans(app).values())
    assert_compliant(app)
```

Nothing here needs AWS, a GPU or the network; failures are ``AssertionError`` with the numbers.
"""

from __future__ import annotations

from cdk_blackwell.testing.assertions import assert_compliant, assert_fits
from cdk_blackwell.testing.looking import jobs, plans, rendered_request

__all__ = ["assert_compliant", "assert_fits", "jobs", "plans", "rendered_request"]
