"""The command line of the disk tests: as far as one likes, where the test suite takes a fixed selection.

python -m replog.testing.disk crashes [--limit N] [--second N] [--workload TEXT]    recover from every state that a power cut can leave
python -m replog.testing.disk bytes [--bits N]    damage every byte of one log's files
python -m replog.testing.disk cluster [--every N] [--offset N]    the same to one of three replicas of a cluster
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from replog.testing.arguments import natural, positive
from replog.testing.disk.sweep import Stop, prepare, sweep, sweep_running
from replog.testing.disk.trial import Broken, try_workload
from replog.testing.disk.workloads import WORKLOADS, Workload

__all__ = ["main"]

_ENDS: tuple[tuple[Stop, bool], ...] = (("clean", False), ("process", False), ("process", True), ("power", False))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if anything was found; what it does not understand, it leaves with 2."""
    about = "Crashes and damage, tried systematically on the real log."
    parser = argparse.ArgumentParser(prog="python -m replog.testing.disk", description=about)
    kinds = parser.add_subparsers(dest="kind", required=True)
    crashes = kinds.add_parser("crashes", help="recover from every state a power cut can leave")
    crashes.add_argument("--limit", type=positive, default=2_500, metavar="N", help="states of one moment at most; above that, a sample")
    crashes.add_argument("--second", type=positive, default=50, metavar="N", help="crash one state in N a second time")
    chosen = "only workloads whose name contains this"
    crashes.add_argument("--workload", type=_workloads, default=WORKLOADS, metavar="TEXT", help=chosen)
    each = kinds.add_parser("bytes", help="damage every byte of one log's files")
    each.add_argument("--bits", type=int, default=1, metavar="N", choices=range(1, 9), help="turn over so many bits of each byte")
    cluster = kinds.add_parser("cluster", help="damage every byte of one of three replicas")
    cluster.add_argument("--every", type=positive, default=1, metavar="N", help="only one in N")
    cluster.add_argument("--offset", type=natural, default=0, metavar="N", help="which one in N")
    given = parser.parse_args(arguments)
    try:
        if given.kind == "crashes":
            _crashes(given.limit, given.second, given.workload)
        elif given.kind == "bytes":
            _bytes(given.bits)
        elif not _cluster(given.every, given.offset):
            parser.error(f"one in {given.every}, from number {given.offset} on: there are not so many injuries")
    except Broken as found:
        print(f"found: {found}")
        return 1
    return 0


def _workloads(text: str) -> Sequence[Workload]:
    """Those that are meant. ArgumentTypeError, with all names, if there are none."""
    chosen = [workload for workload in WORKLOADS if text in workload.name]
    if not chosen:
        names = "; ".join(workload.name for workload in WORKLOADS)
        raise argparse.ArgumentTypeError(f"no workload has {text!r} in its name; there are: {names}")
    return chosen


def _crashes(limit: int, second: int, chosen: Sequence[Workload]) -> None:
    distinct = recovered = crashed = 0
    for workload in chosen:
        for outcome in try_workload(workload, limit=limit, second=second):
            print(outcome, flush=True)
            distinct += len(outcome.states)
            recovered += outcome.recovered
            crashed += outcome.second_crashes
    said = f"{distinct:,} distinct states, {recovered:,} recoveries judged, {crashed:,} second crashes"
    print(f"{len(chosen)} workloads: {said}, 0 violations")


def _bytes(bits: int) -> None:
    for stop, unflushed in _ENDS:
        tally = sweep(prepare(stop, unflushed=unflushed), bits=bits)
        print(f"after a {stop} stop{', with an unflushed end' if unflushed else ''}: {tally}", flush=True)
    print(f"while it runs: {sweep_running()}")


def _cluster(every: int, offset: int) -> int:
    """How many injuries were tried."""
    from replog.testing.disk.cluster_sweep import sweep_cluster

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # it warns of each replica that fails, as it should
    try:
        with tempfile.TemporaryDirectory() as folder:
            tally = sweep_cluster(Path(folder), every=every, offset=offset)
    finally:
        logging.disable(before)
    if tally.injured:
        print(tally)
    return tally.injured


if __name__ == "__main__":
    sys.exit(main())
