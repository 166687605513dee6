"""What the installed command starts: one line where the command line's own packages are missing."""

from __future__ import annotations

import sys

from cdk_blackwell.planning.contracts import EXIT_BAD_INPUT


def main() -> None:
    """Run ``cli.main``; its packages come with the extra ``[cli]``, not with the constructs."""
    try:
        from cdk_blackwell.cli.main import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cdk_blackwell"):
            raise
        print(
            f"cdk-blackwell: the command line needs {error.name}: pip install 'cdk-blackwell[cli]'",
            file=sys.stderr,
        )
        sys.exit(EXIT_BAD_INPUT)
    run()
