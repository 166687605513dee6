"""Other ways to train the same model, to compare the trainer with."""

import benchmarks.training_text  # noqa: F401 - makes the trainer importable
