"""Pictures of a plan: memory against micro-batch, speed and cost against nodes."""
