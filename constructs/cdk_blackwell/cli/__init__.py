"""The ``cdk-blackwell`` command."""
