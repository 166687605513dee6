"""``cdk-blackwell start``: launch a run of a deployed job."""
