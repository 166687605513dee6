"""``cdk-blackwell demo``: the whole life of a run in an embedded AWS, on real text, on CPUs.

``flow`` tells the story in order; each other module owns one part of it.
"""
