"""Reading across leader changes: each record once, truncation is never silent, and what is none is not taken for one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.fake import make

from replog.errors import Code, LogTruncated
from replog.messages import Epochs, EpochsResult, Fetch, Fetched, FetchedEntry, OffsetsForLeaderEpoch
from replog.records import RecordBatch, encode_records


def texts(records: Any) -> list[str]:
    return [record.text() for record in records]


def test_p49_a_reader_across_clean_failovers_sees_each_record_once() -> None:
    cluster, _, client = make({"t": 1}, fetch_bytes=1024)
    for n in range(100):
        client.append("t", 0, [f"{n:0100}"])
    seen = []
    for record in client.read("t"):
        seen.append(int(record.text()))
        if len(seen) % 9 == 0:
            cluster.move("t", 0, 1 + len(seen) % 3)
    assert seen == list(range(100))
    assert cluster.counts["OffsetsForLeaderEpoch"] > 3


def test_a_read_does_not_ask_a_deposed_leader_for_what_its_successor_has_told() -> None:
    """KIP-320: once it knows where it ends, the client forgets what it knew of the cluster; late brokers say who led before."""
    cluster, driver, client = make({"t": 1})
    before = cluster.view()
    cluster.move("t", 0, 2)
    client.append("t", 0, ["a", "b"])
    reading = client.read("t", start=1)

    def late(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Fetch) and broker == 1:
            (entry,) = message.entries
            answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, Code.OFFSET_OUT_OF_RANGE, 0, 0)
            return [Fetched(message.request, 0, -1, 0, [answer])]
        return None

    with driver.lock:
        client._core.crash(KeyboardInterrupt())
    cluster.override, cluster.late_views = late, dict.fromkeys((1, 2, 3), before)
    driver.events = [*[lambda: None] * 6, cluster.late_views.clear]
    assert texts(list(reading)) == ["b"]
    assert not cluster.late_views


def test_p47_truncation_is_reported_even_when_the_log_has_grown_past_the_reader() -> None:
    cluster, _, client = make({"t": 1})
    for n in range(8):
        client.append("t", 0, [f"old {n}"])
    consumer = client.consumer("t", start="earliest")
    assert len(consumer.poll()) == 8
    partition = cluster.partition("t")
    del partition.log[5:]
    cluster.move("t", 0, 2)
    for n in range(6):
        client.append("t", 0, [f"new {n}"], acks=1)
    with pytest.raises(LogTruncated, match="t-0 was truncated: the reader is at offset 8, but records from offset 5 on") as caught:
        consumer.poll()
    assert (caught.value.topic, caught.value.partition, caught.value.offset, caught.value.divergent_offset) == ("t", 0, 8, 5)
    consumer.seek("t", 0, caught.value.divergent_offset)
    assert texts(consumer.poll()) == [f"new {n}" for n in range(6)]


def test_p47_what_was_read_of_an_epoch_that_the_leader_does_not_have_is_gone_from_its_first_record_on() -> None:
    """A successor that had more of the epoch before than the reader's leader: where that ends says nothing about the reader's records."""
    cluster, _, client = make({"t": 1}, fetch_bytes=1024)
    for n in range(4):
        client.append("t", 0, [f"kept {n}"])
    cluster.move("t", 0, 2)
    for n in range(8):
        client.append("t", 0, [f"replaced {n:0900}"], acks=1)
    reading = client.read("t")
    consumers = [client.consumer("t", start="earliest") for _ in range(2)]
    for consumer in consumers:
        assert [record.offset for _ in range(6) for record in consumer.poll(max_records=1)] == list(range(6))
    assert [next(reading).offset for _ in range(6)] == list(range(6))
    partition = cluster.partition("t")
    for batch in partition.log[4:]:  # written under the epoch before, by whoever leads now
        batch.stamp(partition.identity, batch.base_offset, 0)
    cluster.move("t", 0, 3)
    for going_on in (consumers[0].poll, consumers[1].poll, lambda: list(reading)):
        with pytest.raises(LogTruncated) as caught:
            all(going_on() is not None for _ in range(9))  # what had come before is handed out first
        assert caught.value.offset >= 6
        assert caught.value.divergent_offset == 4


def test_p47_a_leader_is_asked_again_about_an_earlier_epoch_of_the_reader() -> None:
    """It answers with an epoch between two of the reader's: of the earlier one it may hold less, too (as a follower asks again, P-15)."""
    cluster, _, client = make({"t": 1})
    for n in range(4):
        client.append("t", 0, [f"first {n}"])
    for _ in range(4):
        cluster.move("t", 0, 2)
    for n in range(2):
        client.append("t", 0, [f"reader's {n}"], acks=1)
    consumer = client.consumer("t", start="earliest")
    assert len(consumer.poll()) == 6
    partition = cluster.partition("t")
    del partition.log[3:]
    partition.epoch = 2
    for n in range(7):
        client.append("t", 0, [f"other's {n}"], acks=1)
    partition.epoch = 4
    cluster.move("t", 0, 3)
    with pytest.raises(LogTruncated) as caught:
        consumer.poll()
    assert (caught.value.offset, caught.value.divergent_offset) == (6, 3)
    consumer.seek("t", 0, 3)
    assert texts(consumer.poll()) == [f"other's {n}" for n in range(7)]


def test_p47_a_leader_that_forgets_while_it_is_asked_again() -> None:
    """Nobody can say any more how much of the earlier epoch it had: all of that may have changed."""
    cluster, _, client = make({"t": 1})
    for epoch, moves in ((0, 0), (3, 3), (5, 2)):
        for _ in range(moves):
            cluster.move("t", 0, 2)
        client.append("t", 0, [f"{epoch} {n}" for n in range(2)], acks=1)
    consumer = client.consumer("t", start="earliest")
    assert len(consumer.poll()) == 6
    asked: list[int] = []

    def answer(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, OffsetsForLeaderEpoch):
            return None
        (entry,) = message.entries
        asked.append(entry.epoch)
        return [Epochs(message.request, [EpochsResult(entry.partition, 0, *((4, 9) if entry.epoch == 5 else (-1, -1)))])]

    cluster.override = answer
    cluster.move("t", 0, 3)
    with pytest.raises(LogTruncated) as caught:
        consumer.poll()
    assert (asked, caught.value.divergent_offset) == ([5, 3], 2)


def test_p47_another_leader_is_asked_about_the_last_epoch_again() -> None:
    """What one leader has said of its log says nothing about the log of the next."""
    cluster, _, client = make({"t": 1})
    for moves in (0, 3):
        for _ in range(moves):
            cluster.move("t", 0, 2)
        client.append("t", 0, ["a", "b"], acks=1)
    consumer = client.consumer("t", start="earliest")
    assert len(consumer.poll()) == 4
    asked: list[tuple[int, int]] = []

    def answer(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, OffsetsForLeaderEpoch):
            return None
        (entry,) = message.entries
        asked.append((entry.leader_epoch, entry.epoch))
        if len(asked) == 1:
            return [Epochs(message.request, [EpochsResult(entry.partition, 0, 2, 9)])]
        if len(asked) == 2:
            cluster.move("t", 0, 1)
            return [Epochs(message.request, [EpochsResult(entry.partition, Code.NOT_LEADER_OR_FOLLOWER)])]
        return None

    cluster.override = answer
    cluster.move("t", 0, 3)
    assert consumer.poll(timeout_s=1) == []
    assert asked == [(4, 3), (4, 0), (5, 3)]
    client.append("t", 0, ["next"], acks=1)
    assert texts(consumer.poll(timeout_s=1)) == ["next"]


def test_p47_a_marker_that_is_passed_over_is_where_its_epoch_begins() -> None:
    """The answer holds the marker of the new epoch alone: what follows it in the next answer does not begin that epoch."""
    cluster, _, client = make({"t": 1}, fetch_bytes=1_024)
    partition = cluster.partition("t")
    for n in range(4):
        client.append("t", 0, [f"kept {n}"])
    consumer = client.consumer("t", start="earliest")
    assert len(consumer.poll()) == 4
    cluster.move("t", 0, 2)
    partition.append(RecordBatch(encode_records([b"marker"], now_ms=1, attributes=1 << 6)))
    only_marker = partition.log[:5]
    for n in range(4):
        client.append("t", 0, [f"old {n}"], acks=1)
    whole = partition.log

    def alone(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Fetch) and message.entries[0].offset == 4:
            partition.log = only_marker
            try:
                entry = cluster._fetched(broker, message.entries[0])
            finally:
                partition.log = whole
            entry.high_watermark = 9
            return [Fetched(message.request, 0, -1, 0, [entry])]
        return None

    cluster.override = alone
    assert [record.offset for record in consumer.poll(timeout_s=1)] == [5, 6, 7, 8]
    cluster.override = None
    for batch in partition.log[4:]:
        batch.stamp(partition.identity, batch.base_offset, 0)
    cluster.move("t", 0, 3)
    with pytest.raises(LogTruncated) as caught:
        consumer.poll(timeout_s=1)
    assert (caught.value.offset, caught.value.divergent_offset) == (9, 4)


def test_who_seeks_has_read_nothing_in_front_of_there() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, [f"{n}" for n in range(4)])
    consumer = client.consumer("t", start="earliest")
    assert len(consumer.poll()) == 4
    consumer.seek("t", 0, 4)
    partition = cluster.partition("t")
    partition.log.clear()
    client.append("t", 0, [f"other {n}" for n in range(6)])
    for batch in partition.log:
        batch.stamp(partition.identity, batch.base_offset, 1)
    cluster.move("t", 0, 2)
    assert texts(consumer.poll(timeout_s=1)) == ["other 4", "other 5"]
    consumer.seek("t", 0, 1)
    assert texts(consumer.poll(timeout_s=1)) == [f"other {n}" for n in range(1, 6)]


def looked_up(*, in_front: int, kept: int, then: int) -> tuple[Any, Any]:
    """A cluster, and a consumer at the end of a log of which it has read nothing; a later leader has less of it, and more that is new."""
    cluster, _, client = make({"t": 1})
    client.append("t", 0, [str(n) for n in range(4)])
    cluster.move("t", 0, 2)
    for n in range(in_front - 4):
        client.append("t", 0, [str(n)])
    consumer = client.consumer("t")
    assert consumer.poll() == []
    assert consumer.position("t", 0) == in_front
    partition = cluster.partition("t")
    del partition.log[kept:]
    cluster.move("t", 0, 3)
    for n in range(then):
        client.append("t", 0, [f"new {n}"], acks=1)
    return cluster, consumer


@pytest.mark.parametrize(("in_front", "kept"), [(4, 0), (8, 0), (8, 1), (8, 3)])
def test_what_is_appended_below_a_position_that_was_looked_up_is_not_passed_over(in_front: int, kept: int) -> None:
    _, consumer = looked_up(in_front=in_front, kept=kept, then=12)
    left = 0 if not kept else 4 + kept - 1  # the first batch has four records
    with pytest.raises(LogTruncated) as caught:
        consumer.poll(timeout_s=1)
    assert (caught.value.offset, caught.value.divergent_offset) == (in_front, left)
    consumer.seek("t", 0, left)
    assert texts(consumer.poll(timeout_s=1)) == [f"new {n}" for n in range(12)]


@pytest.mark.parametrize("in_front", [4, 8])
def test_a_position_that_was_looked_up_stays_where_nothing_is_gone(in_front: int) -> None:
    """Also where its leader has written nothing in its epoch, and who comes after it knows only an earlier one."""
    cluster, consumer = looked_up(in_front=in_front, kept=99, then=2)
    assert texts(consumer.poll(timeout_s=1)) == ["new 0", "new 1"]
    assert cluster.counts["OffsetsForLeaderEpoch"] == 1


def test_p47_a_leader_that_knows_no_epoch_as_old_as_ours() -> None:
    cluster, _, client = make({"t": 1})
    for n in range(4):
        client.append("t", 0, [f"old {n}"])
    consumer = client.consumer("t", start="earliest")
    consumer.poll()
    partition = cluster.partition("t")
    partition.log.clear()
    cluster.move("t", 0, 2)
    for n in range(6):
        client.append("t", 0, [f"new {n}"], acks=1)
    with pytest.raises(LogTruncated):
        consumer.poll()


def test_trimmed_up_to_the_position_is_no_truncation() -> None:
    cluster, _, client = make({"t": 1})
    for n in range(4):
        client.append("t", 0, [str(n)])
    consumer = client.consumer("t", start="earliest")
    consumer.poll()
    partition = cluster.partition("t")
    partition.start = 4
    partition.log.clear()
    cluster.move("t", 0, 2)
    assert consumer.poll(timeout_s=1) == []
    client.append("t", 0, ["next"], acks=1)
    assert texts(consumer.poll(timeout_s=1)) == ["next"]


def test_a_leader_that_knows_our_epoch_ends_the_doubt_that_the_one_before_has_left() -> None:
    """The one before had trimmed everything that it could have known of our epoch; it was replaced before it could say so."""
    cluster, _, client = make({"t": 1})
    for n in range(4):
        client.append("t", 0, [str(n)])
    consumer = client.consumer("t", start="earliest")
    assert len(consumer.poll()) == 4
    partition = cluster.partition("t")
    log, partition.log, partition.start = partition.log, [], 4
    cluster.move("t", 0, 2)
    fetched: list[int] = []

    def elect(message: Any, broker: int) -> None:
        if isinstance(message, Fetch) and broker == 2:
            fetched.append(broker)
            partition.log, partition.start = log, 0
            cluster.move("t", 0, 3)

    cluster.override = elect
    assert consumer.poll(timeout_s=1) == []
    assert fetched == [2]
    client.append("t", 0, ["next"], acks=1)
    assert texts(consumer.poll(timeout_s=1)) == ["next"]


def test_diverging_in_a_fetch_answer_is_truncation() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["a"])

    def diverge(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Fetch):
            return None
        entry = message.entries[0]
        answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, Code.NONE, 1, 0, 1, diverging_epoch=0, diverging_end=0)
        return [Fetched(message.request, 0, -1, 0, [answer])]

    cluster.override = diverge
    with pytest.raises(LogTruncated):
        client.fetch("t", 0, 1)
