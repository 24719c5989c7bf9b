"""The command line of the history checker.

python -m replog.testing.history FILE [--json]     judge a history (several files: recorded apart, by clocks that agree)
python -m replog.testing.history --good N          judge N random good histories: every error is a false alarm
python -m replog.testing.history --measure N       judge a history of N sends and N polls, and say how long it took
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from replog.testing.arguments import positive
from replog.testing.history.checker import check
from replog.testing.history.events import BadHistory
from replog.testing.history.recorder import History
from replog.testing.history.report import Report
from replog.testing.history.samples import good_history, long_history

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if there are errors, 2 if what was given is no history, or holds nothing to judge."""
    parser = argparse.ArgumentParser(prog="python -m replog.testing.history", description="Judge what clients of a log were told.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="a history as JSON lines")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--good", type=positive, metavar="N", help="judge N random good histories")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first of them")
    parser.add_argument("--measure", type=positive, metavar="N", help="measure a history of N sends and N polls")
    given = parser.parse_args(arguments)
    if given.good:
        return _good(given.seed, given.good)
    if given.measure:
        return _measure(given.measure)
    if not given.files:
        parser.error("which history?")
    try:
        report = _judge(given.files)
    except BadHistory as bad:
        print(bad, file=sys.stderr)
        return 2
    print(json.dumps(report.to_json()) if given.json else report)
    return 0 if report.ok else 1


def _judge(files: Sequence[str]) -> Report:
    """The judgement on what these files hold together. BadHistory names the file."""
    histories = [_read(file) for file in files]
    whole = histories[0] if len(histories) == 1 else History.merge(histories)
    together = ", ".join(files)
    if not whole.operations():
        raise BadHistory(f"{together}: no operations, so there is nothing to judge")
    try:
        return check(whole)
    except BadHistory as bad:
        raise BadHistory(f"{together}: {bad}") from bad


def _read(file: str) -> History:
    """One file. One without any event is refused even beside others: it is empty because something went wrong."""
    try:
        history = History.from_jsonl(file)
    except BadHistory as bad:
        raise BadHistory(f"{file}: {bad}") from bad
    except OSError as problem:
        raise BadHistory(f"{file}: {problem.strerror or problem}") from problem
    if not history.operations() and not history.marks:
        raise BadHistory(f"{file}: it holds no operations, so there is nothing to judge")
    return history


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
