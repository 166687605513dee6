"""``cdk-blackwell logs``: what all hosts of a run said, in the order of time."""
