"""A large publication and those who follow: it waits for whoever is in sync, and for nobody else."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.unit.broker.test_publishing import Desk, pieces, results

from replog.errors import Code
from replog.log.memory import MemoryLog
from replog.partition.leading import SLICES_AHEAD

COUNT = 12


def desk_of(isr: tuple[int, ...] = (1, 2)) -> Desk:
    """A slice is one piece of two records."""
    desk = Desk(isr=isr, replica_lag_ms_max=10_000, stage_expiry_ms=100_000)
    desk.put(COUNT)
    return desk


def poll(desk: Desk, count: int = 30) -> int:
    """Polls that are quick: no time passes. How far the log is then."""
    for _ in range(count):
        desk.tick()
    return desk.partition.log.end_offset


def test_slices_wait_until_those_in_sync_have_the_ones_before() -> None:
    desk = desk_of()
    desk.receive(desk.publish(("a", COUNT)))
    assert poll(desk) == 2 * SLICES_AHEAD
    ends = []
    for has in (1, 2, 3, 4, 6, 8, 12):
        desk.fetch(2 * has)
        ends.append(poll(desk) // 2)
    assert ends == [SLICES_AHEAD + has for has in (1, 2, 3, 4, 6, 8)] + [COUNT]
    assert desk.values() == pieces(COUNT)
    assert desk.partition.high_watermark == 2 * COUNT
    desk.assert_idle()


def test_waiting_is_no_busy_loop() -> None:
    desk = desk_of()
    desk.receive(desk.publish(("a", COUNT)))
    poll(desk)
    due_ms = desk.broker._publishing.due_ms
    assert due_ms is not None
    assert due_ms > desk.now_ms
    desk.fetch(0)
    assert poll(desk) == 2 * SLICES_AHEAD, "it has not come further"


def test_who_has_lagged_for_too_long_holds_nothing() -> None:
    """It will leave the ISR; whether the controller is there to agree is another question."""
    desk = desk_of()
    desk.fetch(0)
    desk.receive(desk.publish(("a", COUNT)))
    assert poll(desk) == 2 * SLICES_AHEAD
    desk.now_ms += 9_000
    assert poll(desk) == 2 * SLICES_AHEAD
    desk.now_ms += 2_000
    assert poll(desk) == 2 * COUNT
    assert desk.partition.high_watermark == 0


@pytest.mark.parametrize("has", [None, 0, 2])
def test_who_is_not_in_sync_holds_nothing(has: int | None) -> None:
    desk = desk_of(isr=(1,))
    desk.tell(desk.append("a"), desk.append("b"), desk.append("c"))
    assert desk.partition.high_watermark == 3
    if has is not None:
        desk.fetch(has)  # below the high watermark
    desk.receive(desk.publish(("a", COUNT)))
    assert poll(desk) == 3 + 2 * COUNT
    assert desk.partition.log.end_offset == 3 + 2 * COUNT


@pytest.mark.parametrize("has", [0, 2])
def test_who_is_not_in_sync_and_not_about_to_join_does_not_hold_the_high_watermark(has: int) -> None:
    desk = desk_of(isr=(1,))
    desk.tell(desk.append("a"), desk.append("b"), desk.append("c"))
    desk.fetch(has)
    desk.now_ms += 30_000
    desk.tick()
    desk.receive(desk.publish(("a", COUNT)))
    poll(desk)
    assert desk.partition.high_watermark == 3 + 2 * COUNT


def test_who_leaves_the_isr_lets_go() -> None:
    desk = desk_of()
    desk.receive(desk.publish(("a", COUNT)))
    assert poll(desk) == 2 * SLICES_AHEAD
    desk.lead(isr=(1,), epochs=(0, 1))
    assert poll(desk) == 2 * COUNT
    assert desk.partition.high_watermark == 2 * COUNT


def test_publications_go_on_after_a_topic_was_altered_to_acknowledge_flushes() -> None:
    """Who has everything that is committed reports no flush of it, and is not behind either."""
    desk = desk_of()
    desk.receive(desk.publish(("a", COUNT)))
    for has in range(0, COUNT + 1, SLICES_AHEAD):
        desk.fetch(2 * has)
        poll(desk)
    desk.fetch(2 * COUNT)
    assert desk.partition.high_watermark == 2 * COUNT
    desk.commands += 1
    notice = desk.notice()
    notice.entries[0] = evolve(notice.entries[0], config=evolve(notice.entries[0].config, flush="ack"))
    desk.tell(notice, sender="controller")
    desk.put(COUNT, version=8)
    desk.receive(desk.publish(("a", COUNT), version=8))
    poll(desk)
    desk.now_ms += 200
    assert poll(desk) == 2 * COUNT + 2, "the first slice: from then on there is something to flush, and to report"


def test_many_small_publications_keep_the_same_pace() -> None:
    """Until then others may append: no group is open."""
    desk = desk_of()
    ends = []
    for version in range(8, 8 + SLICES_AHEAD + 2):
        desk.put(1, version=version)
        desk.receive(desk.publish(("a", 1), version=version))
        ends.append(poll(desk))
        if version == 8 + SLICES_AHEAD:
            assert results(desk.tell(desk.append("between", acks=1)))[0][0] == 0
            desk.fetch(2)
            ends.append(poll(desk))
    full = 2 * SLICES_AHEAD
    assert ends == [*range(2, full + 1, 2), full, full + 3, full + 3]
    desk.fetch(4)
    assert poll(desk) == full + 5


def test_under_flush_ack_what_counts_is_flushed() -> None:
    """The lag is of what is flushed, so the pace is too."""
    desk = desk_of()
    leading = desk.partition.leading
    assert leading is not None
    leading.durable = True
    desk.receive(desk.publish(("a", COUNT)))
    poll(desk)
    desk.fetch(2 * SLICES_AHEAD)
    assert poll(desk) == 2 * SLICES_AHEAD
    leading.acknowledge_flush(2, 2, 4, desk.now_ms)
    desk.broker._moved(desk.partition, desk.partition.high_watermark, desk.now_ms)
    assert poll(desk) == 2 * (SLICES_AHEAD + 2)


def test_a_new_leadership_ends_what_waits() -> None:
    desk = desk_of()
    desk.receive(desk.publish(("a", COUNT)))
    poll(desk)
    said = desk.lead(leader=2, epochs=(1, 1))
    assert [code for code, _, _ in results(said)] == [6]
    assert desk.broker._publishing.due_ms is None


def test_a_full_disk_inside_a_group_is_freed_at_once() -> None:
    """Everything in the partition waits for the group: not for minutes until retention is due."""
    desk = desk_of(isr=(1,))
    log = desk.partition.log
    assert isinstance(log, MemoryLog)
    log.config = desk.partition.config = evolve(log.config, segment_bytes=300, retention_bytes=1_000)
    desk.tell(*(desk.append("x" * 200) for _ in range(10)))
    desk.receive(desk.publish(("a", COUNT)))
    desk.tick()
    log.full = True
    before = log.size_bytes
    for _ in range(20):
        desk.now_ms += 100
        desk.tick()
    assert log.end_offset == 12
    assert log.size_bytes < before // 2
    assert [event.name for event in desk.broker.outbox.events].count("log_full") in (1, 2, 3)
    log.full = False
    desk.now_ms += 1_000
    poll(desk)
    assert log.end_offset == 10 + 2 * COUNT
    assert desk.partition.high_watermark == 10 + 2 * COUNT


def test_a_publication_that_has_to_wait_keeps_what_it_is_about() -> None:
    """Its client asks again and again; meanwhile nobody stages anything."""
    desk = Desk(stage_expiry_ms=10_000)
    desk.put(2)
    desk.put(COUNT, writer="v", attempt="b")
    desk.tell(desk.publish(("b", COUNT), writer="v"))
    for _ in range(5):
        desk.now_ms += 4_000
        desk.tick()
        assert results(desk.tell(desk.publish(("a", 2)))) == [(Code.QUOTA_EXCEEDED, -1, -1)]
        assert desk.broker._publishing.due_ms is not None
    desk.ticks()
    desk.now_ms += 4_000
    desk.tick()
    desk.receive(desk.publish(("a", 2)))
    assert results(desk.ticks()[1]) == [(0, 2 * COUNT, 2 * COUNT + 4)]
