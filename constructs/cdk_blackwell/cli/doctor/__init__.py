"""``cdk-blackwell doctor``: what stands between a deployed job and its launch."""
