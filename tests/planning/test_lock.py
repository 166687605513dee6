"""The bundle's lock reads strictly and gives pip what it says."""

from __future__ import annotations

import pytest

from cdk_blackwell.planning.lock import LockedPackage, read_lock

A, B = "a" * 64, "b" * 64
LOCK = f"""# why
one==1.0 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}

two-x==2.0.1 --hash=sha256:{B}  # another
"""


def test_packages_have_version_and_hashes() -> None:
    assert read_lock(LOCK) == (
        LockedPackage(name="one", version="1.0", sha256=(A, B)),
        LockedPackage(name="two-x", version="2.0.1", sha256=(B,)),
    )


def test_a_requirement_reads_back_as_the_package() -> None:
    packages = read_lock(LOCK)
    assert read_lock("\n".join(package.requirement for package in packages)) == packages


@pytest.mark.parametrize(
    "line", ["one", "one==1.0", f"one --hash=sha256:{A}", "one>=1.0 --hash=sha256:xyz"]
)
def test_what_is_not_pinned_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="must pin name==version"):
        read_lock(line)
