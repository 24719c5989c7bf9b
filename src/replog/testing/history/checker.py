"""The judgement on a history: each rule once over each partition, in linear time after sorting."""

from __future__ import annotations

import gc

from replog.testing.history.endings import judge_end
from replog.testing.history.events import Poll
from replog.testing.history.evidence import gather
from replog.testing.history.order import judge_order, void_spurious
from replog.testing.history.positions import follow
from replog.testing.history.recorder import History
from replog.testing.history.report import Report
from replog.testing.history.shape import check_shape
from replog.testing.history.watermarks import judge_watermarks

__all__ = ["check"]


def check(history: History) -> Report:
    """Find every contradiction between what clients were told and what they read.

    Sound for a log with clean elections: a correct one is never accused. It judges by what was observed: a record that no poll
    passed or covered is no error, only a note. BadHistory if a value is sent twice, or is neither a string nor an integer, and if what
    was read is no pairs.
    """
    running = gc.isenabled()
    gc.disable()  # millions of objects, none of them garbage: collecting takes longer than checking
    try:
        return _check(history)
    finally:
        if running:
            gc.enable()


def _check(history: History) -> Report:
    check_shape(history.sends, history.polls)
    report = Report(operations=history.operations())
    settings = history.settings
    polls: dict[str, list[Poll]] = {}
    for poll in sorted(history.polls, key=lambda poll: poll.invoked):
        polls.setdefault(poll.key, []).append(poll)
    for key, evidence in gather(history).items():
        evidence.read(report, idempotent=settings.idempotent)
        void_spurious(evidence, report, idempotent=settings.idempotent)
        evidence.confirm(report, idempotent=settings.idempotent)
        follow(evidence, polls.get(key, []), report)
        judge_order(evidence, report, idempotent=settings.idempotent)
        judge_watermarks(evidence, report, stale_reads=settings.stale_reads)
        judge_end(evidence, report)
    return report
