"""The three templates: the same files, with a tier's values filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final, Literal

from cdk_blackwell._version import __version__
from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.planning.contracts import Tier

Name = Literal["small", "mid", "large"]
_FOLDER: Final = Path(__file__).parent / "template"
FILES: Final[Mapping[str, str]] = {
    "app.py": "app.py.txt",
    "cdk.json": "cdk.json.txt",
    "requirements.txt": "requirements.txt.txt",
    ".gitignore": "gitignore.txt",
    "README.md": "README.md.txt",
    "tests/test_app.py": "test_app.py.txt",
    "conftest.py": "conftest.py.txt",
}
"""File of the new application -> its template."""


@dataclass(frozen=True, kw_only=True)
class Values:
    """What differs between tiers; the models are those of the repository's own stacks."""

    tier: Tier
    job_class: str
    model: str
    sequence_length: int
    train_tokens: int
    instance_count: int
    prefix: str
    """Begins the stacks' names."""
    job_name: str


TEMPLATES: Final[Mapping[Name, Values]] = {
    "small": Values(
        tier="small",
        job_class="SmallModelJob",
        model="llama-3.2-1b",
        sequence_length=8_192,
        train_tokens=20_000_000_000,
        instance_count=1,
        prefix="Small",
        job_name="small",
    ),
    "mid": Values(
        tier="mid",
        job_class="MidModelJob",
        model="llama-3.1-8b",
        sequence_length=8_192,
        train_tokens=160_000_000_000,
        instance_count=2,
        prefix="Mid",
        job_name="mid",
    ),
    "large": Values(
        tier="large-sharded",
        job_class="LargeShardedJob",
        model="qwen2.5-32b",
        sequence_length=8_192,
        train_tokens=640_000_000_000,
        instance_count=4,
        prefix="Large",
        job_name="large",
    ),
}
"""Tokens are 20 a parameter, compute-optimal (arXiv:2203.15556), rounded."""


def write_application(name: Name, folder: Path) -> list[Path]:
    """Create the files; gives their paths. CommandError when ``folder`` holds anything."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(f"{folder} is not an empty folder: give one that is, or a new one")
    values = TEMPLATES[name]
    words = {
        **{key: _literal(value) for key, value in vars(values).items()},
        "version": __version__,
    }
    written = []
    for target, source in FILES.items():
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template((_FOLDER / source).read_text()).substitute(words))
        written.append(path)
    return written


def _literal(value: str | int) -> str:
    return f"{value:_}" if isinstance(value, int) else value
