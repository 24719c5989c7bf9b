"""The command line of the simulator.

    python -m replog.testing.simulator SEED [--runs N] [--events N] [-v]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from replog.testing.simulator.run import run

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if any run violated an invariant."""
    about = "Seeded runs of a whole cluster in virtual time."
    parser = argparse.ArgumentParser(prog="python -m replog.testing.simulator", description=about)
    parser.add_argument("seed", type=int, help="the seed of the (first) run")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="run N seeds, from SEED on")
    parser.add_argument("--events", type=int, default=None, metavar="N", help="end the time of faults after N events")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the plan and the whole trace of each run")
    given = parser.parse_args(arguments)
    broken = 0
    for seed in range(given.seed, given.seed + given.runs):
        outcome = run(seed, events_max=given.events, tail=1_000_000 if given.verbose else 40)
        if outcome.violation is not None or given.verbose:
            print(outcome.plan)
            print("the end of the trace:" if not given.verbose else "the trace:")
            print("\n".join(f"  {line}" for line in outcome.tail))
        if outcome.violation is not None:
            broken += 1
            print(f"violated {outcome.violation}")
            print(f"replay: python -m replog.testing.simulator {seed}")
        print(outcome.summary)
    if given.runs > 1:
        print(f"{given.runs} runs, {broken} violated an invariant")
    return 1 if broken else 0



if __name__ == "__main__":
    sys.exit(main())
