"""How often a leader may ask for another ISR, and that no run comes near the limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import PID, holds, violates

from replog.messages import AlterIsr, AlterIsrEntry
from replog.model import PartitionId
from replog.testing.simulator.invariants import ProposalsAreBounded
from replog.testing.simulator.invariants.storms import PROPOSALS_MAX

pytestmark = pytest.mark.simulation

ENTRY = AlterIsrEntry(PID, 3, 4, [(1, 1), (2, 2)], proposal=1)
LIMIT = range(1, PROPOSALS_MAX + 1)


def at(now_ms: int, broker_id: int = 1) -> Any:
    return SimpleNamespace(broker_id=broker_id, world=SimpleNamespace(now_ms=now_ms))


def asked(*entries: AlterIsrEntry) -> AlterIsr:
    return AlterIsr(1, 1, 1, list(entries), 1)


def test_s21_a_leader_that_is_refused_asks_again_and_again() -> None:
    rule = ProposalsAreBounded()
    for number in LIMIT:
        holds(rule.said, at(5_000 + number), 2, asked(evolve(ENTRY, proposal=number)))
    holds(rule.said, at(5_500), 2, asked(evolve(ENTRY, proposal=1)))  # sent again, because nobody answers
    violates("S21", rule.said, at(5_999), 2, asked(evolve(ENTRY, proposal=PROPOSALS_MAX + 1)))


@pytest.mark.parametrize(
    ("node", "change"),
    [
        (at(6_000), {}),  # in the next second
        (at(5_999, broker_id=2), {}),
        (at(5_999), {"partition_epoch": 5}),  # something was stored
        (at(5_999), {"leader_epoch": 4}),
        (at(5_999), {"partition": PartitionId(bytes(16), 1, 0)}),
    ],
)
def test_s21_what_is_asked_for_something_else_does_not_add_up(node: Any, change: dict[str, Any]) -> None:
    rule = ProposalsAreBounded()
    rule.said(at(5_000), 2, asked(*(evolve(ENTRY, proposal=number) for number in LIMIT)))
    holds(rule.said, node, 2, asked(evolve(ENTRY, proposal=PROPOSALS_MAX + 1, **change)))
