"""The three templates: the same files, with a tier's values filled in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from string import Template
from typing import Final, Literal

from cdk_blackwell._version import __version__
from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.planning.assumptions import plural
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
    max_runtime_hours: int
    """A fifth above what the plan predicts, or more; a test compares them."""
    storage_gib: int
    throughput_per_tib: int
    """Enough for the job's checkpoints."""
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
        max_runtime_hours=24,
        storage_gib=1200,
        throughput_per_tib=250,
        prefix="Small",
        job_name="small",
    ),
    "mid": Values(
        tier="mid",
        job_class="MidModelJob",
        model="llama-3.1-8b",
        sequence_length=8_192,
        train_tokens=24_000_000_000,
        instance_count=2,
        max_runtime_hours=48,
        storage_gib=1200,
        throughput_per_tib=500,
        prefix="Mid",
        job_name="mid",
    ),
    "large": Values(
        tier="large-sharded",
        job_class="LargeShardedJob",
        model="qwen2.5-32b",
        sequence_length=8_192,
        train_tokens=25_000_000_000,
        instance_count=4,
        max_runtime_hours=96,
        storage_gib=2400,
        throughput_per_tib=1000,
        prefix="Large",
        job_name="large",
    ),
}
"""What ends within the five days that an account's quota gives a training job at first."""


def write_application(name: Name, folder: Path) -> list[Path]:
    """Create the files; gives their paths. CommandError when ``folder`` holds anything."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(f"{folder} is not an empty folder: give one that is, or a new one")
    values = TEMPLATES[name]
    words = {
        **{key: _literal(value) for key, value in vars(values).items()},
        "storage_gib": str(values.storage_gib),
        "instances": plural(values.instance_count, "instance"),
        "requirement": _requirement(),
    }
    written = []
    for target, source in FILES.items():
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template((_FOLDER / source).read_text()).substitute(words))
        written.append(path)
    return written


def _requirement() -> str:
    """This version; installed from a folder, as before a release, that folder (PEP 610)."""
    origin = json.loads(distribution("cdk-blackwell").read_text("direct_url.json") or "{}")
    released = f"cdk-blackwell[cli]=={__version__}"
    if "dir_info" not in origin:
        return released
    return f"# As installed here; of a release: {released}\ncdk-blackwell[cli] @ {origin['url']}"


def _literal(value: str | int) -> str:
    return f"{value:_}" if isinstance(value, int) else value
