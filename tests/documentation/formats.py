"""Blocks of data must at least be what they say they are."""

from __future__ import annotations

import json
import tomllib

import yaml
from sybil import Example


def check_json(example: Example) -> None:
    """One JSON value."""
    json.loads(str(example.parsed))


def check_toml(example: Example) -> None:
    """One TOML document."""
    tomllib.loads(str(example.parsed))


def check_yaml(example: Example) -> None:
    """One YAML document; CloudFormation's short functions are not used in the documentation."""
    yaml.safe_load(str(example.parsed))
