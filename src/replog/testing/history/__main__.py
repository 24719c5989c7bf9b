"""The command line of the history checker.

python -m replog.testing.history FILE [--json]     judge a history (several files: recorded apart at the same time)
python -m replog.testing.history --good N          judge N random good histories: every error is a false alarm
python -m replog.testing.history --measure N       judge a history of N sends and N polls, and say how long it took
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from replog.testing.history.checker import check
from replog.testing.history.events import BadHistory
from replog.testing.history.recorder import History
from replog.testing.history.samples import good_history, long_history

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if there are errors, 2 if what was given is no history."""
    parser = argparse.ArgumentParser(prog="python -m replog.testing.history", description="Judge what clients of a log were told.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="a history as JSON lines")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--good", type=int, default=0, metavar="N", help="judge N random good histories")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first of them")
    parser.add_argument("--measure", type=int, default=0, metavar="N", help="measure a history of N sends and N polls")
    given = parser.parse_args(arguments)
    if given.good:
        return _good(given.seed, given.good)
    if given.measure:
        return _measure(given.measure)
    if not given.files:
        parser.error("which history?")
    try:
        histories = [History.from_jsonl(file) for file in given.files]
        report = check(histories[0] if len(histories) == 1 else History.merge(histories))
    except BadHistory as bad:
        print(bad, file=sys.stderr)
        return 2
    print(json.dumps(report.to_json()) if given.json else report)
    return 0 if report.ok else 1


def _good(seed: int, count: int) -> int:
    alarms = 0
    operations = 0
    for number in range(seed, seed + count):
        report = check(good_history(number))
        operations += report.operations
        if not report.ok:
            alarms += 1
            print(f"seed {number}: {report}")
    print(f"{count} good histories, {operations} operations, {alarms} false alarms")
    return 1 if alarms else 0


def _measure(pairs: int) -> int:
    begun = time.process_time()
    history = long_history(pairs)
    recorded = time.process_time()
    report = check(history)
    checked = time.process_time()
    print(report)
    print(f"recorded in {recorded - begun:.2f} s of processor time, {(recorded - begun) / pairs / 4 * 1e6:.2f} us per event")
    print(f"checked in {checked - recorded:.2f} s of processor time")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
