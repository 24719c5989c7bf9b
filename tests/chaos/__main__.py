"""Real brokers under faults, from the root of a clone:

    python -m tests.chaos run --runs 10        a minute each, in turn over a file and over ZooKeeper; counted in tests/chaos/ledger.jsonl
    python -m tests.chaos one file 1007 -v     one seed again: the same faults, though not the same moments
    python -m tests.chaos soak file --minutes 60     one cluster for so long, a fault a minute; counted in tests/chaos/soaks.jsonl
    python -m tests.chaos tally                what the ledgers hold
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.chaos import counting
from tests.chaos.running import Run, run
from tests.chaos.soaking import soak
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
    long = commands.add_parser("soak")
    long.add_argument("store", choices=list(STORES))
    long.add_argument("--minutes", type=float, default=60.0)
    long.add_argument("-v", dest="say", action="store_const", const=print, default=lambda line: None)
    commands.add_parser("tally")
    asked = parser.parse_args()
    if asked.command == "tally":
        print(counting.tally())
        print(counting.tally_soaks())
        return 0
    if asked.command == "soak":
        done = soak(asked.store, int(time.time()), 60 * asked.minutes, say=asked.say)
        counting.append_soak(done)
        print(counting.tally_soaks().splitlines()[-1])
        print("\n".join(f"  {text}" for text in done.broken), end="\n" if done.broken else "")
        return 1 if done.broken else 0
    if asked.command == "one":
        return _told(run(asked.store, asked.seed, asked.seconds, say=asked.say))
    for _ in range(asked.runs):
        seed = counting.next_seed()
        ran = run(list(STORES)[seed % len(STORES)], seed, asked.seconds, say=asked.say)
        counting.append(ran)
        if _told(ran):
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
