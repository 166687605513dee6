"""``cdk-blackwell runs`` and ``stop``: what was launched, how it went, and its end."""
