"""Who counts, who may join, and what is committed."""

from __future__ import annotations

import pytest
from attrs import evolve

from replog.model import BrokerInfo
from replog.partition.isr import Committed, InSyncCommit, PendingExpand, PendingShrink, refusal_to_join
from replog.partition.replica import UNKNOWN, Contact, Replica


@pytest.mark.parametrize(
    ("state", "maximal", "proposed"),
    [
        (PendingExpand((1, 2), (3,)), (1, 2, 3), (1, 2, 3)),
        (PendingShrink((1, 2, 3), (2, 3)), (1, 2, 3), (1,)),
        (PendingShrink((1,), (), recovered=True), (1,), (1,)),
    ],
)
def test_a_proposal_counts_with_the_larger_set(
    state: PendingExpand | PendingShrink, maximal: tuple[int, ...], proposed: tuple[int, ...]
) -> None:
    assert state.maximal_isr == maximal
    assert state.proposed == proposed
    assert Committed(state.isr).maximal_isr == state.isr


def test_two_equal_proposals_are_not_the_same() -> None:
    assert PendingExpand((1,), (2,)) != PendingExpand((1,), (2,))  # an answer belongs to the one that was sent


def replica(position: int, life: int = 7) -> Replica:
    made = Replica(2, 0)
    made.position, made.broker_epoch = position, life
    return made


WELL = BrokerInfo(2, 7)


@pytest.mark.parametrize(
    ("position", "broker", "why"),
    [
        (10, WELL, None),
        (11, WELL, None),
        (UNKNOWN, WELL, "it has not fetched in this leader epoch"),
        (7, WELL, "it is at 7, below the high watermark 8"),
        (9, WELL, "it is at 9, below the start of this leader epoch 10"),
        (10, None, "its broker is not registered"),
        (10, evolve(WELL, fenced=True), "its broker is fenced"),
        (10, evolve(WELL, draining=True), "its broker is draining"),
        (10, evolve(WELL, broker_epoch=8), "its broker has restarted: epoch 8, it fetched with 7"),
        (10, evolve(WELL, broker_epoch=6), "its broker has restarted: epoch 6, it fetched with 7"),
    ],
)
def test_who_may_join(position: int, broker: BrokerInfo | None, why: str | None) -> None:
    brokers = {} if broker is None else {2: broker}
    assert refusal_to_join(replica(position), brokers, high_watermark=8, epoch_start=10) == why


@pytest.mark.parametrize(
    ("leader_end", "positions", "committed"),
    [(10, (), 10), (10, (10, 12), 10), (10, (9, 7), 7), (10, (10, UNKNOWN), UNKNOWN), (0, (0,), 0)],
)
def test_committed_is_what_everyone_has(leader_end: int, positions: tuple[int, ...], committed: int) -> None:
    assert InSyncCommit().high_watermark(leader_end, [replica(p) for p in positions]) == committed


# ------------------------------------------------------------------------------------------------------- the time rule


def test_whoever_reached_the_end_is_caught_up_from_then_on() -> None:
    one = Replica(2, 0)
    one.reached(10, 10, 1_000)
    assert not one.lags(10, 0, 999_999, 5_000)  # still at the end: nothing is missed (KAFKA-7152)
    assert not one.lags(11, 0, 6_000, 5_000)
    assert one.lags(11, 0, 6_001, 5_000)


def test_whoever_reached_the_end_of_a_fetch_ago_was_caught_up_then() -> None:
    one = Replica(2, 0)
    one.reached(0, 10, 1_000)
    one.reached(10, 20, 2_000)
    assert one.caught_up_ms == 1_000
    one.reached(19, 30, 3_000)  # one short of the end at the previous fetch
    assert one.caught_up_ms == 1_000


def test_flushes_that_cover_what_had_come_when_they_began_put_nobody_out() -> None:
    one = Replica(2, 0)
    for report in range(1, 100):  # the flush before had begun with what was there two reports ago
        one.flushed(10 * (report - 2), 10 * report, 1_000 * report)
        assert not one.lags(10 * report, 0, 1_000 * report, 4_000)
    one.flushed(970, 1_200, 110_000)  # said again, and nothing new
    one.flushed(970, 1_300, 120_000)
    assert one.lags(1_300, 0, 120_000, 4_000)
    one.flushed(990, 1_400, 121_000)
    assert one.caught_up_ms == 98_000, "the mark stays until it is reached"


def test_what_was_committed_before_this_leadership_needs_no_report() -> None:
    one = Replica(2, 0)
    one.end_offset = 10
    assert not one.lags(10, 10, 999_999, 5_000)
    assert one.lags(10, 9, 999_999, 5_000)
    assert one.lags(11, 10, 999_999, 5_000)


def test_one_who_waits_at_the_leader_is_present() -> None:
    one = Replica(2, 0)
    one.contact = Contact()
    one.contact.last_fetch_ms = 4_000
    one.left_behind(9_000)
    assert one.caught_up_ms == 4_000
    one.contact.parked = 1
    one.left_behind(9_000)
    assert one.caught_up_ms == 9_000


def test_a_new_life_has_acknowledged_nothing() -> None:
    one = Replica(2, 0)
    one.reached(10, 10, 50_000)
    one.position = 10
    one.restarted(8)
    assert (one.broker_epoch, one.position, one.end_offset) == (8, UNKNOWN, UNKNOWN)
    assert one.lags(10, 0, 50_001, 30_000)
    assert one.lags(10, 0, 1, 30_000)  # nor while the clock is younger than the lag time


def test_who_was_in_sync_before_its_broker_went_is_not_said_never_to_have_fetched() -> None:
    member = replica(10)
    member.end_offset = 10
    member.gone(10, 8, 5_000)
    assert refusal_to_join(member, {2: WELL}, high_watermark=8, epoch_start=10) == "it has not fetched since its broker went"
    member.restarted(8)
    assert refusal_to_join(member, {2: WELL}, high_watermark=8, epoch_start=10) == "it has not fetched in this leader epoch"
