"""``cdk-blackwell init``: an application of the user's own to begin with."""
