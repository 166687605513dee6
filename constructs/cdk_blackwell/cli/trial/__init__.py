"""``cdk-blackwell trial``: short runs of what the plan offers, before the long one."""
