"""What a flush proves: nothing of a log that was cut since it was asked for."""

from __future__ import annotations

import pytest
from tests.simulation.checks.situations import PID, header, holds, node_with, partition, violates

from replog.log.memory import MemoryLog
from replog.ports import FlushDone, FlushToken
from replog.testing.log_contract import append
from replog.testing.simulator.invariants import FlushesProveWhatTheyWrote

pytestmark = pytest.mark.simulation


def cut_under_way() -> tuple[MemoryLog, FlushToken]:
    """A log that was cut and appended to while a flush of it was under way."""
    log = MemoryLog(PID)
    append(log, 3)
    token = log.flush()
    assert token is not None
    log.truncate_to(1)
    append(log, 2)
    return log, token


def test_s22_a_flush_from_before_a_cut_counts() -> None:
    log, token = cut_under_way()
    rule, node = FlushesProveWhatTheyWrote(), node_with(partition(log=log, values=0))
    rule.received(node, None, FlushDone(token.run()))
    log.flushed(token)
    holds(rule.handled, node)
    rule.received(node, None, FlushDone(token))
    log.flushed_end = token.end
    violates("S22", rule.handled, node)
    log.flushed_end = log.start_offset
    rule.received(node, None, FlushDone(token))
    holds(rule.handled, node)
    log.flushed_end = token.end  # by a later flush
    holds(rule.handled, node)


def test_s22_a_flush_from_after_it_counts_rightly() -> None:
    log, _ = cut_under_way()
    rule, node = FlushesProveWhatTheyWrote(), node_with(partition(log=log, values=0))
    token = log.flush()
    assert token is not None
    rule.received(node, None, FlushDone(token.run()))
    log.flushed(token)
    assert log.flushed_end == log.end_offset == token.end
    holds(rule.handled, node)


def test_s22_what_retention_takes_counts_as_flushed() -> None:
    log, token = cut_under_way()
    rule, node = FlushesProveWhatTheyWrote(), node_with(partition(log=log, values=0))
    rule.received(node, None, FlushDone(token))
    log.start_offset, log.flushed_end = 1, 3
    holds(rule.handled, node)


def test_s22_nothing_is_said_of_a_log_that_is_gone() -> None:
    _, token = cut_under_way()
    rule = FlushesProveWhatTheyWrote()
    holds(rule.received, node_with(None), None, FlushDone(token))
    holds(rule.handled, node_with(None))
    holds(rule.received, node_with(None), None, header(0, 3))
