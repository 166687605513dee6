"""``cdk-blackwell checkpoints``: list, fetch and export what a run has saved."""
