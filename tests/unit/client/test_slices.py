"""A fetch that waits for long asks again and again: no request is under way for so long that its connection counts as idle."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.client.fetching import SLICE_MS_MAX, FetchOp
from replog.client.unpacking import unpack_all
from replog.errors import Code, LogTruncated, UnknownTopicId
from replog.messages import Fetch, Fetched, FetchedEntry, OffsetsForLeaderEpoch
from replog.records import Record, RecordBatch, encode_records


def unpacked(client: Client, op: FetchOp) -> list[Record]:
    client._do(op)
    return unpack_all(op).records


class Waits:
    """What is asked of leaders that hold an empty fetch for as long as it says, until something comes at `comes_ms`."""

    def __init__(self, *, comes_ms: int | None = None, **config: Any) -> None:
        made: tuple[FakeCluster, FakeDriver, Client] = make({"t": 1}, **config)
        self.cluster, self.driver, self.client = made
        self.client.topics()
        self.began_ms = self.driver.now_ms()
        self.comes_ms = comes_ms
        self.slices: list[int] = []
        self.happens: dict[int, Any] = {}
        """Number of a slice -> what happens while it is waited for."""
        self.cluster.override = self.hold

    def hold(self, message: Any, broker: int) -> None:
        if not isinstance(message, Fetch):
            return
        self.slices.append(message.max_wait_ms)
        self.happens.pop(len(self.slices), lambda: None)()
        if self.cluster.partition("t").end > message.entries[0].offset:
            return
        wait_ms = message.max_wait_ms
        if self.comes_ms is not None and self.elapsed_ms + wait_ms >= self.comes_ms:
            wait_ms = self.comes_ms - self.elapsed_ms
            self.come()
        self.driver.clock.advance(wait_ms)

    def come(self) -> None:
        self.cluster.partition("t").append(RecordBatch(encode_records([b"late"], now_ms=1)))

    @property
    def elapsed_ms(self) -> int:
        return self.driver.now_ms() - self.began_ms


@pytest.mark.parametrize(
    ("request_timeout_ms", "wait_s", "slices"),
    [
        (30_000, 0, [0]),
        (30_000, 25, [25_000]),
        (30_000, 30, [30_000]),
        (30_000, 31, [30_000, 1_000]),
        (30_000, 100, [30_000, 30_000, 30_000, 10_000]),
        (3_600_000, 100, [SLICE_MS_MAX, 40_000]),
        (3_600_000, 60, [60_000]),
        (500, 2, [500] * 4),
    ],
)
def test_a_long_wait_is_asked_for_in_slices_of_the_request_timeout(request_timeout_ms: int, wait_s: float, slices: list[int]) -> None:
    waits = Waits(request_timeout_ms=request_timeout_ms)
    assert waits.client.fetch("t", 0, 0, wait_s=wait_s) == []
    assert waits.slices == slices
    assert waits.elapsed_ms == wait_s * 1000


def test_it_ends_when_a_record_comes() -> None:
    waits = Waits(comes_ms=95_000)
    assert [record.text() for record in waits.client.fetch("t", 0, 0, wait_s=600)] == ["late"]
    assert waits.slices == [30_000] * 4
    assert waits.elapsed_ms == 95_000


def test_a_wait_of_many_years_is_none_of_the_brokers_business() -> None:
    waits = Waits(comes_ms=40_000)
    assert len(waits.client.fetch("t", 0, 0, wait_s=9e8)) == 1
    assert waits.slices == [30_000, 30_000]


def test_an_answer_before_its_time_takes_only_the_time_that_it_took() -> None:
    waits = Waits()

    def early(message: Any, broker: int) -> None:
        if len(waits.slices) == 1:
            waits.slices.append(message.max_wait_ms)
            waits.driver.clock.advance(29_990)
        else:
            waits.hold(message, broker)

    waits.cluster.override = early
    assert waits.client.fetch("t", 0, 0, wait_s=70) == []
    assert waits.slices == [30_000, 30_000, 10_010]
    assert waits.elapsed_ms == 70_000


@pytest.mark.parametrize("wait_s", [0.5, 20, 70])
@pytest.mark.parametrize("times", [1, 3, 10**6])
def test_a_leader_that_holds_no_more_fetches_is_asked_again_after_a_pause_until_the_time_is_over(wait_s: float, times: int) -> None:
    waits = Waits()
    asked: list[int] = []

    def early(message: Any, broker: int) -> None:
        if isinstance(message, Fetch):
            asked.append(waits.elapsed_ms)
            if len(asked) > times:
                waits.hold(message, broker)

    waits.cluster.override = early
    assert waits.client.fetch("t", 0, 0, wait_s=wait_s) == []
    assert waits.elapsed_ms == wait_s * 1000
    pauses = [after - before for before, after in pairwise(asked)]
    assert all(pauses), "it is not asked all the time"
    assert len(asked) <= 10 + wait_s * 1.3, "ever more seldom, up to a second"
    if times <= 3:
        assert asked[times] < 300


def test_a_topic_that_is_made_again_between_two_slices_is_another_one() -> None:
    waits = Waits()

    def again() -> None:
        waits.cluster.delete("t")
        waits.cluster.create("t")
        waits.come()

    waits.happens = {2: again}
    with pytest.raises(UnknownTopicId, match="deleted and created again"):
        waits.client.fetch("t", 0, 0, wait_s=100)


def test_who_checks_its_position_checks_it_between_slices_too() -> None:
    waits = Waits()
    waits.come()
    cluster = waits.cluster

    def elected() -> None:  # uncleanly: what was read at offset 0 is another record now
        cluster.partition("t").log.clear()
        cluster.move("t", 0, 2)
        waits.come()

    waits.happens = {2: elected}
    now_ms = waits.driver.now_ms()
    op = FetchOp("t", 0, 1, max_bytes=1_000, wait_ms=100_000, deadline_ms=now_ms + 200_000, known_epoch=0, epochs=[(0, 0)])
    with pytest.raises(LogTruncated):
        waits.client._do(op)
    assert cluster.counts[OffsetsForLeaderEpoch.__name__] == 1


def test_who_knew_nothing_of_its_position_knows_the_epochs_that_an_earlier_slice_passed_over() -> None:
    """Else what an unclean election has put in place of a control batch would be passed over in silence."""
    waits = Waits()
    waits.come()
    partition = waits.cluster.partition("t")
    marker = RecordBatch(encode_records([b"marker"], now_ms=1, attributes=1 << 6))

    def elected() -> None:  # uncleanly: the marker is gone
        del partition.log[1:]
        waits.cluster.move("t", 0, 2)
        for _ in range(2):
            waits.come()

    waits.happens = {2: lambda: partition.append(marker), 4: elected}
    op = FetchOp("t", 0, 1, max_bytes=1_000, wait_ms=200_000, deadline_ms=waits.driver.now_ms() + 300_000)
    with pytest.raises(LogTruncated) as caught:
        waits.client._do(op)
    assert caught.value.divergent_offset == 1


def test_what_a_leader_had_trimmed_up_to_the_position_is_no_truncation_in_a_later_slice() -> None:
    waits = Waits()
    partition = waits.cluster.partition("t")
    partition.start = 1
    waits.cluster.move("t", 0, 2)  # it knows nothing of epoch 0, and says so
    passed_over = RecordBatch(encode_records([b"marker"], now_ms=1, attributes=1 << 6))
    waits.happens = {2: lambda: partition.append(passed_over), 4: waits.come}
    now_ms = waits.driver.now_ms()
    op = FetchOp("t", 0, 1, max_bytes=1_000, wait_ms=200_000, deadline_ms=now_ms + 300_000, known_epoch=0, epochs=[(0, 0)])
    assert [record.value for record in unpacked(waits.client, op)] == [b"late"]
    assert waits.cluster.counts[OffsetsForLeaderEpoch.__name__] == 1


def test_a_leader_from_before_the_position_is_not_asked() -> None:
    """Who has read under leader epoch 1 waits until it hears of that epoch: whoever led before may not have what was read (KIP-320)."""
    cluster, driver, client = make({"t": 1})
    client.topics()
    cluster.late_views = {broker: cluster.view() for broker in (1, 2, 3)}
    cluster.partition("t").append(RecordBatch(encode_records([b"read", b"next"], now_ms=1)))
    cluster.move("t", 0, 2)
    asked: list[tuple[str, int]] = []

    def answer(message: Any, broker: int) -> list[Any] | None:
        asked.append((type(message).__name__, broker))
        if asked.count(("Metadata", broker)) == 3:
            cluster.late_views.pop(broker, None)
        if isinstance(message, Fetch) and broker == 1:  # it has not heard that it was deposed, and never had what was read
            (entry,) = message.entries
            refused = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, Code.OFFSET_OUT_OF_RANGE, 0, 0)
            return [Fetched(message.request, 0, -1, 0, [refused])]
        return None

    cluster.override = answer
    op = FetchOp("t", 0, 1, max_bytes=1_000, wait_ms=0, deadline_ms=driver.now_ms() + 60_000, known_epoch=1, epochs=[(1, 0)])
    assert [record.value for record in unpacked(client, op)] == [b"next"]
    assert [what for what in asked if what[0] != "Metadata"] == [("Fetch", 2)]
    assert len(asked) > 3


def test_trouble_on_the_way_takes_from_the_time_that_was_asked_for() -> None:
    """Leaders that change cost no more than the whole wait: then there is nothing, which is no error."""
    waits = Waits(request_timeout_ms=30_000)
    refused: list[int] = []

    def hold(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Fetch) and len(refused) < 2:
            refused.append(broker)
            waits.driver.clock.advance(20_000)
            entry = message.entries[0]
            gone = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, Code.NOT_LEADER_OR_FOLLOWER)
            return [Fetched(message.request, -1, 0, Code.NONE, [gone])]
        return waits.hold(message, broker)

    waits.cluster.override = hold
    assert waits.client.fetch("t", 0, 0, wait_s=100) == []
    assert len(refused) == 2
    assert 100_000 <= waits.driver.now_ms() - waits.began_ms < 101_000
