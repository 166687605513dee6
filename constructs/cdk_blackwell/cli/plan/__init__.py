"""``cdk-blackwell plan``: what fits, how to shard it, how fast it should go and what it costs."""
