"""The first thing a rank does: give an account and heed signals, before anything heavy is imported.

Importing torch takes seconds to minutes on a cold image. A rank that dies meanwhile would leave no
account, and the launcher would blame what an earlier start of the workers has left; one that is
asked to stop meanwhile would be taken for lost. Standard library only, until `run` is imported.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping

from cdk_blackwell.planning.contracts import Tier
from trainer.errors import classify, describe
from trainer.rank_state import RankReporter
from trainer.signals import StopFlag

EXIT_FAILED = 1


def enter(tier: Tier, environment: Mapping[str, str]) -> int:
    """The exit status of this rank, which trains what ``run.json`` says if it is of ``tier``."""
    ranks = RankReporter.from_environment(environment)
    ranks.report("running")
    stop = StopFlag(ranks)
    stop.install()
    try:
        from trainer.run import run
    except Exception as error:
        ranks.report("failed", kind=classify(error), message=describe(error))
        traceback.print_exc()
        print(f"rank {ranks.rank}: {describe(error)}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    return run(tier, environment, ranks=ranks, stop=stop)
