"""Documents to token shards: what ``prepare_data.py`` is made of. Runs on a user's machine."""
