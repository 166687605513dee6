"""``cdk-blackwell watch``: one run, live."""
