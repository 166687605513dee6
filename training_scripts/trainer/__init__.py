"""The training loop of the bundle and its parts; importing the package alone loads nothing."""
