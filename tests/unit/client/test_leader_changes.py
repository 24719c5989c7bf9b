"""Reading across leader changes: each record once, truncation is never silent, and what is none is not taken for one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.fake import make

from replog.errors import Code, LogTruncated
from replog.messages import Fetch, Fetched, FetchedEntry


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
