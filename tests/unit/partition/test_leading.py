"""A leader: what it counts, what it commits, what it asks for, and what it makes of the answers."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.unit.partition.copies import IDENTITY, LIMITS, batch, fetch, leading, log_of, notice, partition_of

from replog.config import BrokerConfig
from replog.errors import Code
from replog.messages import AlterIsrResult
from replog.model import ACKS_ALL, ACKS_LEADER, BrokerInfo, PartitionState
from replog.partition.isr import Committed, PendingExpand, PendingShrink
from replog.partition.leading import Leading
from replog.partition.partition import Partition
from replog.partition.replica import UNKNOWN
from replog.ports import EpochEnd, FlushToken


def led(partition: Partition) -> Leading:
    assert partition.leading is not None
    return partition.leading


def append(partition: Partition, text: str = "x", now_ms: int = 0) -> None:
    assert partition.append(batch(text, 0, 0), ACKS_LEADER, now_ms).error == 0


# --------------------------------------------------------------------------------------------------------- taking over


def test_the_epoch_begins_before_the_first_write() -> None:
    partition = leading(log_of(("a", 1)))
    assert partition.log.epochs.entries() == ((1, 0), (5, 1))


def test_nothing_is_known_of_the_others() -> None:
    partition = leading(log_of(("a", 1)))
    assert [r.position for r in led(partition).replicas.values()] == [UNKNOWN, UNKNOWN]
    assert fetch(partition, 2, 1, 1) == (0, None)
    partition.become(notice(1, 6, (1, 2, 3), partition_epoch=1), 10)
    assert [r.position for r in led(partition).replicas.values()] == [UNKNOWN, UNKNOWN]  # not even in the next epoch of the same leader


def test_a_broker_does_not_lead_an_epoch_again_of_which_it_has_records() -> None:
    partition = partition_of(log_of(("a", 5)))
    assert partition.become(notice(1, 5, (1, 2)), 0) == Code.FENCED_LEADER_EPOCH
    assert partition.role == "idle"
    assert partition.become(notice(1, 6, (1, 2), partition_epoch=1), 0) == 0
    assert partition.role == "leader"


@pytest.mark.parametrize(
    ("epoch", "partition_epoch", "code"),
    [(4, 9, Code.FENCED_LEADER_EPOCH), (5, 2, Code.INVALID_UPDATE_VERSION), (5, 3, 0), (5, 4, 0), (6, 4, 0), (6, 2, 0)],
)
def test_older_news_is_refused(epoch: int, partition_epoch: int, code: int) -> None:
    partition = partition_of(log_of())
    partition.become(notice(1, 5, (1, 2, 3), partition_epoch=3), 0)
    assert partition.become(notice(1, epoch, (1, 2), partition_epoch=partition_epoch), 1) == code
    grew = code == 0 and (epoch, partition_epoch) > (5, 3)
    assert led(partition).isr.isr == ((1, 2) if grew else (1, 2, 3))


def test_a_leader_that_is_not_assigned_does_not_lead() -> None:
    partition = partition_of(log_of())
    partition.become(notice(1, 5, (1, 2), replicas=(2, 3)), 0)
    assert partition.role == "follower"


# ----------------------------------------------------------------------------------------------------- acknowledgement


@pytest.mark.parametrize(
    ("offset", "last", "code", "parted"),
    [
        (3, 1, 0, None),
        (2, 1, 0, None),
        (0, -1, 0, None),
        (4, 1, 0, EpochEnd(1, 3)),
        (4, 0, 0, EpochEnd(0, 1)),
        (2, 0, 0, EpochEnd(0, 1)),
        (3, 7, Code.OFFSET_OUT_OF_RANGE, None),  # beyond everything here: with fencing it cannot be
        (4, -1, Code.OFFSET_OUT_OF_RANGE, None),
    ],
)
def test_a_fetch_is_compared_before_it_counts(offset: int, last: int, code: int, parted: EpochEnd | None) -> None:
    partition = leading(log_of(("a", 0), ("b", 1), ("c", 1)), epoch=5)
    assert fetch(partition, 2, offset, last) == (code, parted)
    counted = code == 0 and parted is None
    assert led(partition).replicas[2].position == (offset if counted else UNKNOWN)


def test_below_the_start_of_the_log_comes_before_divergence() -> None:
    log = log_of(("a", 0), ("b", 1))
    log.trim_to(1)
    assert fetch(leading(log), 2, 0, 0) == (Code.OFFSET_OUT_OF_RANGE, None)  # KAFKA-12996


@pytest.mark.parametrize(
    ("offset", "last", "parted"),
    [
        (2, 1, EpochEnd(1, 2)),  # it ends where this log begins: of what it holds nothing can be compared
        (3, 1, EpochEnd(1, 2)),
        (3, 5, EpochEnd(5, 2)),
        (2, 5, None),
        (2, -1, None),  # it holds nothing
    ],
)
def test_what_can_no_longer_be_compared_does_not_count(offset: int, last: int, parted: EpochEnd | None) -> None:
    log = log_of(("a", 2), ("b", 2))
    log.trim_to(2)
    partition = leading(log, epoch=5)
    assert fetch(partition, 2, offset, last) == (0, parted)
    assert led(partition).replicas[2].position == (UNKNOWN if parted else offset)


@pytest.mark.parametrize(("start", "offset"), [(0, 1), (0, 3), (2, 3)])
def test_an_empty_copy_above_the_start_that_knows_no_epoch_begins_at_the_start(start: int, offset: int) -> None:
    """All that it held has expired, and nobody knows of which epoch that was: the records below its offset may never have been there."""
    log = log_of(("a", 2), ("b", 2), ("c", 3))
    log.trim_to(start)
    partition = leading(log, (1, 3))
    assert fetch(partition, 2, offset, -1) == (0, EpochEnd(5, start))
    assert led(partition).replicas[2].position == UNKNOWN
    assert fetch(partition, 2, start, -1) == (0, None)
    assert led(partition).replicas[2].position == start


@pytest.mark.parametrize(("isr", "elr"), [((1, 2), ()), ((1,), (2,))])
def test_a_complete_copy_does_not_begin_anew(isr: tuple[int, ...], elr: tuple[int, ...]) -> None:
    """It would be elected with less than is committed: what it has trimmed was committed."""
    partition = partition_of(log_of(("a", 2), ("b", 2)))
    state = PartitionState(1, 5, isr, elr=elr)
    partition.become(evolve(notice(1, 5, isr), state=state), 0)
    assert fetch(partition, 2, 1, -1) == (0, None)
    assert led(partition).replicas[2].position == 1


def test_whoever_holds_nothing_agrees_with_everyone() -> None:
    """An epoch without records is no reason to ask twice: ten thousand empty logs change their leader with one fetch each."""
    assert fetch(leading(log_of(), epoch=5), 2, 0, 3) == (0, None)


@pytest.mark.parametrize(
    ("replica", "epoch", "code"),
    [(2, 4, Code.FENCED_LEADER_EPOCH), (2, 6, Code.UNKNOWN_LEADER_EPOCH), (9, 5, Code.UNKNOWN_LEADER_EPOCH)],
)
def test_who_may_fetch(replica: int, epoch: int, code: int) -> None:
    partition = leading(log_of(("a", 1)))
    assert fetch(partition, replica, 1, 1, epoch=epoch) == (code, None)
    assert partition.high_watermark == 0
    assert sorted(led(partition).replicas) == [2, 3]


def test_a_stale_life_does_not_count() -> None:
    partition = leading(log_of(("a", 1)))
    assert fetch(partition, 2, 1, 1, life=1) == (Code.STALE_BROKER_EPOCH, None)  # broker 2 is registered under 2
    assert fetch(partition, 2, 1, 1, life=3) == (0, None)  # ahead of what this leader has heard
    assert fetch(partition, 2, 1, 1, life=2) == (Code.STALE_BROKER_EPOCH, None)


def test_the_first_fetch_of_a_member_does_not_cost_it_the_time_it_was_given() -> None:
    partition = partition_of(log_of(("a", 1), ("b", 1)))
    partition.become(notice(1, 5, (1, 2, 3)), 100_000)
    fetch(partition, 2, 1, 1, 100_001)  # behind, as after every election under load
    assert led(partition).change(110_000) is None
    change = led(partition).change(110_001)
    assert isinstance(change, PendingShrink)
    assert change.leaving == (2, 3)


def test_news_of_another_life_takes_the_acknowledgement_back() -> None:
    partition = leading(log_of(("a", 1)))
    fetch(partition, 2, 1, 1)
    led(partition).forget_life(2, 2, 0)
    assert led(partition).replicas[2].position == 1
    led(partition).forget_life(2, 3, 0)
    assert led(partition).replicas[2].position == UNKNOWN
    led(partition).forget_life(9, 3, 0)  # of no concern here


def test_the_end_of_a_life_takes_its_acknowledgement_back_and_no_later_one() -> None:
    partition = leading(log_of(("a", 1)))
    fetch(partition, 2, 1, 1, life=3)
    led(partition).forget_life(2, 2, 0, ended=True)
    assert led(partition).replicas[2].position == 1
    led(partition).forget_life(2, 3, 0, ended=True)
    assert led(partition).replicas[2].position == UNKNOWN
    led(partition).forget_life(3, 3, 0, ended=True)  # which has not fetched
    assert led(partition).replicas[3].broker_epoch == -1
    assert fetch(partition, 2, 1, 1, life=3) == (0, None)
    assert led(partition).replicas[2].position == 1


@pytest.mark.parametrize(("late_ms", "leaving"), [(0, (3,)), (1, (2, 3))])
def test_time_in_which_nothing_was_appended_is_no_lag_of_one_whose_broker_is_gone(late_ms: int, leaving: tuple[int, ...]) -> None:
    partition = leading(log_of(("a", 1)))
    for broker, end in ((2, 1), (3, 0)):
        fetch(partition, broker, end, 1 if end else -1)
        led(partition).replicas[broker].contact.last_fetch_ms = 3_600_000  # an hour later it has still asked for more
        led(partition).forget_life(broker, broker, 3_600_100, ended=True)
    change = led(partition).change(3_600_000 + LIMITS.replica_lag_ms_max + late_ms)
    assert isinstance(change, PendingShrink)
    assert change.leaving == leaving, "3 did lack something"


def test_a_flush_of_a_life_that_is_over_counts_no_more_and_people_see_how_far_it_was() -> None:
    partition = leading(log_of(), (1, 2), flush="ack")
    append(partition)
    fetch(partition, 2, 1, 5, life=3)
    led(partition).forget_life(2, 3, 0, ended=True)
    partition.acknowledge_flush(2, 3, 5, 1, 0)
    replica = led(partition).replicas[2]
    assert (replica.position, replica.end_offset, replica.seen_end) == (UNKNOWN, UNKNOWN, 1)
    led(partition).forget_life(2, 4, 0)
    assert replica.seen_end == UNKNOWN


# ------------------------------------------------------------------------------------------------------ high watermark


def test_everyone_in_sync_has_to_have_it() -> None:
    partition = leading(log_of(("a", 1), ("b", 1)))
    assert partition.high_watermark == 0
    fetch(partition, 2, 2, 1)
    assert partition.high_watermark == 0
    fetch(partition, 3, 1, 1)
    assert partition.high_watermark == 1
    fetch(partition, 3, 2, 1)
    assert partition.high_watermark == 2


def test_alone_it_commits_what_it_appends() -> None:
    partition = leading(log_of(), (1,))
    append(partition)
    assert partition.high_watermark == 1


def test_below_min_isr_it_stands_still() -> None:
    partition = leading(log_of(), (1,), min_isr=2)
    append(partition)
    assert partition.high_watermark == 0
    assert partition.append(batch("y", 0, 0), ACKS_ALL, 0).error == Code.NOT_ENOUGH_REPLICAS
    assert partition.log.end_offset == 1


def test_min_isr_is_never_more_than_there_are_replicas() -> None:
    partition = partition_of(log_of())
    partition.become(notice(1, 5, (1,), min_isr=2, replicas=(1,)), 0)
    append(partition)
    assert partition.high_watermark == 1


@pytest.mark.parametrize(
    ("broker", "position", "held"),
    [
        (BrokerInfo(3, 3), 1, True),
        (BrokerInfo(3, 3), 0, False),  # out of the ISR, and it has not caught up for a long time
        (BrokerInfo(3, 3, fenced=True), 1, False),
        (BrokerInfo(3, 3, draining=True), 1, False),
        (BrokerInfo(3, 4), 1, False),
    ],
)
def test_one_who_is_about_to_join_holds_it_too(broker: BrokerInfo, position: int, held: bool) -> None:
    partition = leading(log_of(("a", 1)), (1, 2))
    fetch(partition, 2, 1, 1, 20_000)
    fetch(partition, 3, position, 1 if position else -1, 20_000)
    append(partition, now_ms=20_000)
    partition.brokers[3] = broker  # type: ignore[index]
    fetch(partition, 2, 2, 5, 20_001)
    assert partition.high_watermark == (1 if held else 2)


def test_a_replica_that_was_just_assigned_holds_nobody_up() -> None:
    partition = partition_of(log_of(("a", 1)))
    partition.become(notice(1, 5, (1, 2), replicas=(1, 2)), 0)
    partition.become(notice(1, 5, (1, 2), partition_epoch=1), 0)
    fetch(partition, 3, 0, -1)
    fetch(partition, 2, 1, 1)
    assert partition.high_watermark == 1


def test_durable_positions_are_flushed_ones() -> None:
    partition = leading(log_of(), (1, 2), flush="ack")
    append(partition)
    fetch(partition, 2, 1, 5)
    token = partition.log.flush()
    assert isinstance(token, FlushToken)
    partition.flushed(token.run(), 0)
    assert partition.high_watermark == 0  # broker 2 has it, and has not flushed it
    partition.acknowledge_flush(2, 1, 5, 1, 0)  # of another life
    partition.acknowledge_flush(2, 2, 4, 1, 0)  # of another epoch
    partition.acknowledge_flush(3, 3, 5, 1, 0)  # who has not fetched
    assert partition.high_watermark == 0
    partition.acknowledge_flush(2, 2, 5, 9, 0)  # never beyond what it has fetched
    assert (led(partition).replicas[2].position, partition.high_watermark) == (1, 1)


def test_from_the_moment_that_flushes_count_only_what_is_flushed_counts() -> None:
    """A topic altered from flush="os" to "ack", without another partition epoch: what was fetched before proves nothing."""
    partition = leading(log_of(), (1, 2))
    append(partition)
    fetch(partition, 2, 1, 5)
    append(partition)
    fetch(partition, 2, 2, 5)
    assert partition.high_watermark == 2
    append(partition)
    fetch(partition, 2, 3, 5)
    append(partition)
    token = partition.log.flush()
    assert partition.become(notice(1, 5, (1, 2), flush="ack"), 0) == 0
    partition.flushed(token.run(), 0)
    fetch(partition, 2, 4, 5)
    assert partition.high_watermark == 3
    partition.acknowledge_flush(2, 2, 5, 4, 0)
    assert partition.high_watermark == 4
    append(partition)
    assert partition.become(notice(1, 5, (1, 2), flush="os"), 0) == 0
    fetch(partition, 2, 5, 5)
    assert partition.high_watermark == 5


def test_a_follower_that_says_that_it_flushes_counts_for_what_it_has_flushed() -> None:
    """Whatever the leader has heard of the topic: after a power cut it would answer for all that it was counted for (X-14)."""
    partition = leading(log_of(), (1, 2))
    append(partition)
    fetch(partition, 2, 1, 5)
    assert partition.high_watermark == 1
    append(partition)
    fetch(partition, 2, 2, 5, flushes=True)
    assert (led(partition).replicas[2].position, partition.high_watermark) == (-1, 1)
    partition.acknowledge_flush(2, 2, 5, 2, 0)
    assert partition.high_watermark == 2
    append(partition)
    fetch(partition, 2, 3, 5, flushes=True)
    assert partition.high_watermark == 2
    assert partition.become(notice(1, 5, (1, 2), flush="ack"), 0) == 0
    assert led(partition).replicas[2].position == 2  # that was flushed
    assert partition.become(notice(1, 5, (1, 2), flush="os"), 0) == 0
    assert partition.high_watermark == 2
    fetch(partition, 2, 3, 5)
    assert partition.high_watermark == 3


def test_another_life_says_anew_whether_it_flushes() -> None:
    partition = leading(log_of(), (1, 2))
    append(partition)
    fetch(partition, 2, 0, -1, flushes=True)
    led(partition).forget_life(2, 7, 0)
    assert not led(partition).replicas[2].flushes


def test_a_position_that_was_only_fetched_is_forgotten_when_flushes_count() -> None:
    partition = leading(log_of(), (1, 2))
    append(partition)
    append(partition)
    fetch(partition, 2, 2, 5)  # the high watermark is 2
    follower = led(partition).replicas[2]
    assert follower.position == 2
    partition.become(notice(1, 5, (1, 2), flush="ack"), 0)
    assert follower.position == -1
    partition.acknowledge_flush(2, 2, 5, 1, 0)
    assert (follower.position, partition.high_watermark) == (1, 2)


# ----------------------------------------------------------------------------------------------------------- proposals


def test_one_change_per_proposal_and_a_shrink_first() -> None:
    partition = leading(log_of(("a", 1)), (1, 2))
    append(partition)
    fetch(partition, 3, 2, 5, 20_000)
    change = led(partition).change(20_000)
    assert isinstance(change, PendingShrink)
    assert change.leaving == (2,)
    led(partition).propose(change)
    assert led(partition).change(20_000) is None


@pytest.mark.parametrize("min_isr", [1, 2])
def test_whoever_would_have_to_leave_at_once_does_not_join(min_isr: int) -> None:
    """A slow follower, always at the high watermark and never at the end, came and went with each of its fetches."""
    partition = leading(log_of(("a", 1)), (1,), min_isr=min_isr)
    fetch(partition, 2, 1, 1, 0)
    append(partition, now_ms=0)
    replica = led(partition).replicas[2]
    assert isinstance(led(partition).change(10_000), PendingExpand)
    assert led(partition).refusal(replica, 10_001) == "it has lagged for more than 10000 ms"
    assert led(partition).change(10_001) is None  # KAFKA-19996
    fetch(partition, 2, 2, 5, 10_001)
    assert isinstance(led(partition).change(10_001), PendingExpand)


def test_recovering_ends_before_anybody_joins() -> None:
    partition = partition_of(log_of(("a", 1)))
    partition.become(notice(1, 5, (1,), recovering=True), 0)
    fetch(partition, 2, 1, 1)
    change = led(partition).change(0)
    assert isinstance(change, PendingShrink)
    assert (change.proposed, change.recovered) == ((1,), True)


def proposing() -> tuple[Partition, PendingExpand]:
    partition = leading(log_of(("a", 1)), (1, 2))
    fetch(partition, 3, 1, 1)
    change = led(partition).change(0)
    assert isinstance(change, PendingExpand)
    led(partition).propose(change)
    return partition, change


STORED = PartitionState(1, 5, (1, 2, 3), partition_epoch=1)
UNCHANGED = evolve(STORED, isr=(1, 2), partition_epoch=0)
STAYS = object()


@pytest.mark.parametrize(
    ("error", "state", "isr"),
    [
        (Code.NONE, STORED, (1, 2, 3)),
        (Code.NONE, evolve(STORED, isr=(1, 2), partition_epoch=0), (1, 2)),  # an equal partition epoch: nothing had to change
        (Code.NONE, evolve(STORED, leader_epoch=6), STAYS),
        (Code.NONE, evolve(STORED, leader=2), STAYS),
        (Code.NONE, None, STAYS),
        (Code.INELIGIBLE_REPLICA, UNCHANGED, (1, 2)),
        (Code.OPERATION_NOT_ATTEMPTED, UNCHANGED, (1, 2)),
        (Code.INELIGIBLE_REPLICA, evolve(UNCHANGED, leader_epoch=4), STAYS),  # to a proposal of an earlier life
        (Code.INELIGIBLE_REPLICA, None, STAYS),
        (Code.FENCED_LEADER_EPOCH, None, STAYS),
        (Code.INVALID_UPDATE_VERSION, None, STAYS),
        (Code.INVALID_UPDATE_VERSION, evolve(STORED, isr=(1,)), (1,)),  # it brought newer state along
        (Code.INVALID_UPDATE_VERSION, evolve(STORED, partition_epoch=0), STAYS),
        (Code.UNKNOWN_TOPIC_ID, None, STAYS),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, None, STAYS),
        (Code.INVALID_REQUEST, None, STAYS),
        (Code.NEW_LEADER_ELECTED, None, STAYS),
        (Code.NOT_CONTROLLER, STORED, STAYS),
        (Code.REQUEST_TIMED_OUT, None, STAYS),
        (Code.UNKNOWN_SERVER_ERROR, None, STAYS),
    ],
)
def test_each_answer(error: int, state: PartitionState | None, isr: object) -> None:
    partition, change = proposing()
    moved = partition.answered(change, AlterIsrResult(IDENTITY, error, state), 0)
    assert moved == (isr is not STAYS)
    if isr is STAYS:
        assert led(partition).isr is change
    else:
        assert led(partition).isr == Committed(isr)  # type: ignore[arg-type]


def test_an_answer_that_comes_late_changes_nothing() -> None:
    partition, change = proposing()
    assert partition.answered(change, AlterIsrResult(IDENTITY, Code.NONE, STORED), 0)
    assert not partition.answered(change, AlterIsrResult(IDENTITY, Code.INELIGIBLE_REPLICA, UNCHANGED), 0)
    assert not led(partition).answered(change, AlterIsrResult(IDENTITY, Code.NONE, evolve(STORED, isr=(1,), partition_epoch=2)), 0)
    assert led(partition).isr == Committed((1, 2, 3))


def test_after_a_refusal_it_waits() -> None:
    partition, change = proposing()
    partition.answered(change, AlterIsrResult(IDENTITY, Code.INELIGIBLE_REPLICA, UNCHANGED), 1_000)
    pause = LIMITS.retry_backoff_ms_max
    assert led(partition).change(1_000 + pause - 1) is None
    assert isinstance(led(partition).change(1_000 + pause), PendingExpand)
    assert BrokerConfig().retry_backoff_ms_max == pause


# --------------------------------------------------------------------------------------------------------------- reads


def test_a_client_reads_below_the_high_watermark() -> None:
    partition = leading(log_of(("a", 1), ("b", 1)))
    fetch(partition, 2, 1, 1)
    fetch(partition, 3, 1, 1)
    slices, watermark = partition.read_committed(0, 1 << 20)
    assert (watermark, [(s.base_offset, s.end_offset) for s in slices]) == (1, [(0, 1)])
    assert partition.read_committed(1, 1 << 20) == ([], 1)
    assert [s.end_offset for s in partition.read_as_leader(0, 1 << 20)] == [2]


def test_the_latest_offset_waits_for_the_start_of_the_epoch() -> None:
    partition = leading(log_of(("a", 1), ("b", 1)))
    assert partition.latest_offset() is None
    for replica in (2, 3):
        fetch(partition, replica, 1, 1)
    assert partition.latest_offset() is None
    for replica in (2, 3):
        fetch(partition, replica, 2, 1)
    assert partition.latest_offset() == 2


@pytest.mark.parametrize(("offset", "leader", "follower"), [(2, 0, 0), (3, Code.OFFSET_OUT_OF_RANGE, Code.OFFSET_NOT_AVAILABLE)])
def test_beyond_the_end(offset: int, leader: int, follower: int) -> None:
    partition = leading(log_of(("a", 1), ("b", 1)))
    assert partition.check_read(offset) == leader
    partition.become(notice(2, 6, (1, 2), partition_epoch=1), 0)
    assert partition.check_read(offset) == follower
    partition.log.trim_to(1)
    assert partition.check_read(0) == Code.OFFSET_OUT_OF_RANGE


def test_another_configuration_or_assignment_counts_under_the_same_partition_epoch() -> None:
    """A topic that is altered gives its partitions no other state; what the same notice says again changes nothing."""
    partition = leading(log_of(), (1, 2))
    append(partition)
    fetch(partition, 2, 1, 5)
    position = led(partition).replicas[2].position
    told = notice(1, 5, (1, 2), replicas=(1, 2, 3, 4), min_isr=2)
    for _ in range(2):
        assert partition.become(told, 0) == 0
        assert sorted(led(partition).replicas) == [2, 3, 4]
        assert (led(partition).effective_min_isr, led(partition).replicas[2].position) == (2, position)
        assert partition.log.config.min_isr == 2


def test_another_configuration_does_not_decide_what_was_proposed() -> None:
    """Nothing proves that it was not stored: the maximal ISR counts on, or a member of the stored ISR would miss what is committed."""
    partition = leading(log_of(), isr=(1,), min_isr=1)
    lead = led(partition)
    assert fetch(partition, 2, 0, -1) == (0, None)
    change = lead.change(0)
    assert change is not None
    lead.propose(change)
    state = PartitionState(leader=1, leader_epoch=5, isr=(1,), min_isr=1)
    told = notice(1, 5, (1,))
    assert partition.become(evolve(told, state=state, config=evolve(told.config, retention_ms=1_000, min_isr=1)), 1) == 0
    assert lead.config.retention_ms == 1_000
    assert lead.isr is change


@pytest.mark.parametrize(("replicas", "stays"), [((1, 2, 3, 4), True), ((1, 2, 3), False)])
def test_what_was_proposed_for_a_broker_that_is_no_replica_any_more_is_taken_back(replicas: tuple[int, ...], stays: bool) -> None:
    """The answer that completed a move was faster than the notice of it; the controller refuses such a proposal for ever."""
    partition = partition_of(log_of(), brokers=4)
    partition.become(notice(1, 5, (1, 2), replicas=(1, 2, 3, 4)), 0)
    lead = led(partition)
    for joining in (3, 4):
        assert fetch(partition, joining, 0, -1) == (0, None)
    change = lead.change(0)
    assert isinstance(change, PendingExpand)
    assert change.joining == (3, 4)
    lead.propose(change)
    assert partition.become(notice(1, 5, (1, 2), replicas=replicas), 1) == 0
    assert lead.isr == (change if stays else Committed((1, 2)))
    assert [replica.broker_id for replica in lead.counted] == ([2, 3, 4] if stays else [2])


# ------------------------------------------------------------------------- what ends without a message about this partition


def refused(*joining: int, min_isr: int = 1) -> Partition:
    """A leader whose proposal to let these in was refused."""
    partition = leading(log_of(("a", 1)), (1,), min_isr=min_isr)
    for broker_id in joining:
        fetch(partition, broker_id, 1, 1, 0)
    change = led(partition).change(0)
    assert isinstance(change, PendingExpand)
    assert change.joining == joining
    led(partition).propose(change)
    partition.answered(change, AlterIsrResult(IDENTITY, Code.INELIGIBLE_REPLICA, PartitionState(1, 5, (1,), partition_epoch=0)), 0)
    return partition


def test_x07_whoever_was_about_to_join_holds_the_high_watermark_no_longer_than_that() -> None:
    """A client that waits for it appends nothing more, and a follower at the end has nothing to say: 120 s, and then the append failed."""
    partition = leading(log_of(("a", 1)), (1,))
    fetch(partition, 3, 1, 1, 0)
    append(partition, now_ms=0)
    assert partition.high_watermark == 1, "3 is about to join"
    partition.look_again(10_000)
    assert partition.high_watermark == 1
    partition.look_again(10_001)
    assert partition.high_watermark == 2


def test_x07_nor_does_one_whose_broker_is_gone() -> None:
    partition = leading(log_of(("a", 1)), (1,))
    fetch(partition, 3, 1, 1, 0)
    append(partition, now_ms=0)
    led(partition).brokers = {b: info for b, info in led(partition).brokers.items() if b != 3}
    partition.look_again(1)
    assert partition.high_watermark == 2


def test_x08_of_several_who_were_refused_each_is_proposed_by_itself() -> None:
    """A copy that the controller knows to be broken was refused, and with it the intact one, for ever."""
    partition = refused(2, 3)
    seen = []
    for at in (60_000, 120_000, 180_000):
        change = led(partition).change(at)
        assert isinstance(change, PendingExpand)
        seen.append(change.joining)
        led(partition).propose(change)
        partition.answered(change, AlterIsrResult(IDENTITY, Code.INELIGIBLE_REPLICA, PartitionState(1, 5, (1,), partition_epoch=0)), at)
    assert seen == [(2,), (3,), (2,)]
    change = led(partition).change(240_000)
    assert isinstance(change, PendingExpand)
    assert change.joining == (3,)
    led(partition).propose(change)
    partition.answered(change, AlterIsrResult(IDENTITY, Code.NONE, PartitionState(1, 5, (1, 3), partition_epoch=1)), 240_000)
    assert list(led(partition).refused) == [2]


def test_x08_whoever_was_refused_holds_nothing_until_it_gets_on() -> None:
    partition = refused(3)
    append(partition, now_ms=0)
    partition.look_again(0)
    assert partition.high_watermark == 2
    fetch(partition, 3, 2, 5, 0)
    append(partition, now_ms=0)
    assert partition.high_watermark == 2, "it is caught up, and holds it again"


def test_x09_under_flush_ack_a_follower_lags_whose_disk_hangs() -> None:
    """It fetched, so it stayed in the ISR, and nothing was committed any more."""
    partition = leading(log_of(("a", 1)), (1, 2), flush="ack")
    fetch(partition, 2, 1, 1, 0)
    partition.acknowledge_flush(2, 2, 5, 1, 0)
    append(partition, now_ms=0)
    for at in range(0, 10_001, 1_000):
        fetch(partition, 2, 2, 5, at)
        assert led(partition).change(at) is None
        assert not led(partition).followers_equal
    fetch(partition, 2, 2, 5, 10_001)
    change = led(partition).change(10_001)
    assert isinstance(change, PendingShrink)
    assert change.leaving == (2,)
    partition.acknowledge_flush(2, 2, 5, 2, 10_001)
    assert led(partition).change(10_001) is None
    assert led(partition).followers_equal


def test_x09_under_flush_ack_an_outsider_whose_disk_hangs_holds_nothing_for_longer_than_the_lag_time() -> None:
    partition = leading(log_of(("a", 1)), (1,), flush="ack")
    fetch(partition, 3, 1, 1, 0)
    partition.acknowledge_flush(3, 3, 5, 1, 0)
    append(partition, now_ms=0)
    for at in range(0, 10_002, 1_000):
        fetch(partition, 3, 2, 5, at)
    partition.log.flushed(flushed_token(partition))
    partition.look_again(10_000)
    assert partition.high_watermark <= 1
    partition.look_again(10_001)
    assert partition.high_watermark == 2


def test_x09_who_has_yet_to_flush_what_was_committed_without_it_holds_the_watermark_once() -> None:
    """It was equal with each append, and held each of them for the lag time."""
    partition = leading(log_of(("a", 1)), (1,), flush="ack")
    fetch(partition, 3, 1, 1, 0)
    partition.acknowledge_flush(3, 3, 5, 1, 0)
    now = 0
    for end in (2, 3, 4):
        led(partition).replicas[3].contact.last_fetch_ms = now
        append(partition, now_ms=now)
        fetch(partition, 3, end, 5, now)
        partition.flushed(flushed_token(partition), now)
        if end == 2:
            assert partition.high_watermark == 1
            now = 10_001  # its disk hangs
            partition.look_again(now)
        assert partition.high_watermark == end


def test_x09_under_flush_ack_nobody_lags_behind_an_idle_leader_that_is_new() -> None:
    partition = partition_of(log_of(("a", 1)), high_watermark=1)
    partition.become(notice(1, 5, (1, 2), flush="ack"), 0)
    fetch(partition, 2, 1, 1, 0)
    assert led(partition).replicas[2].position == UNKNOWN, "it has told an earlier leader"
    assert led(partition).change(999_999) is None
    assert led(partition).followers_equal
    led(partition).replicas[2].contact.last_fetch_ms = 1_000_000
    append(partition, now_ms=1_000_000)
    assert led(partition).change(1_010_000) is None
    assert isinstance(led(partition).change(1_010_001), PendingShrink)


def flushed_token(partition: Partition) -> Any:
    """What the leader's own disk has done."""
    token = partition.log.flush()
    assert token is not None
    token.run()
    return token


def test_from_flush_ack_to_another_what_was_fetched_counts() -> None:
    partition = leading(log_of(("a", 1)), (1, 2), flush="ack")
    fetch(partition, 2, 1, 1, 0)
    assert partition.high_watermark == 0
    partition.become(notice(1, 5, (1, 2), flush="os"), 0)
    assert partition.high_watermark == 1
