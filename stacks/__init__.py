"""The deployable stacks: one foundation, one stack per size tier."""
