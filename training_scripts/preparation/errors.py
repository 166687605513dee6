"""The one kind of error that ``prepare_data.py`` explains instead of showing a traceback."""


class InputError(Exception):
    """A mistake in what was asked for; its message is the whole output."""
