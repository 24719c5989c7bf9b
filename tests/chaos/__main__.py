"""Real brokers under faults, from the root of a clone:

    python -m tests.chaos run --runs 10        a minute each, in turn over a file and over ZooKeeper; counted in tests/chaos/ledger.jsonl
    python -m tests.chaos one file 1007 -v     one seed again: the same faults, though not the same moments
    python -m tests.chaos tally                what the ledger holds
"""

from __future__ import annotations

import argparse
import sys

from tests.chaos import counting
from tests.chaos.running import Run, run
from tests.chaos.stores import STORES


def main() -> int:
    """Run one command."""
    described = {"description": __doc__, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", **described)
    commands = parser.add_subparsers(dest="command", required=True)
    several = commands.add_parser("run")
    several.add_argument("--runs", type=int, default=2)
    one = commands.add_parser("one")
    one.add_argument("store", choices=list(STORES))
    one.add_argument("seed", type=int)
    for each in (several, one):
        each.add_argument("--seconds", type=float, default=60.0)
        each.add_argument("-v", dest="say", action="store_const", const=print, default=lambda line: None)
    commands.add_parser("tally")
    asked = parser.parse_args()
    if asked.command == "tally":
        print(counting.tally())
        return 0
    if asked.command == "one":
        return _told(run(asked.store, asked.seed, asked.seconds, say=asked.say))
    for _ in range(asked.runs):
        seed = counting.next_seed()
        done = run(list(STORES)[seed % len(STORES)], seed, asked.seconds, say=asked.say)
        counting.append(done)
        if _told(done):
            return 1
    print(counting.tally())
    return 0


def _told(done: Run) -> int:
    counts = f"{done.brokers} brokers, {sum(done.faults.values())} faults, {done.acknowledged} acknowledged, {len(done.broken)} wrong"
    print(f"{done.store} {done.seed}: {counts}", flush=True)
    for text in done.broken:
        print(f"  {text}")
    return 1 if done.broken else 0


if __name__ == "__main__":
    sys.exit(main())
