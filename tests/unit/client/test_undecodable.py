"""An intact batch that nobody can decode: what is in front of it is read, then an error says where to go on, again and again."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, make

from replog.client.client import Client
from replog.client.consumer import Consumer
from replog.errors import Code, CorruptMessage, Rejected, UndecodableBatch, UnknownTopicOrPartition
from replog.messages import Fetch, Fetched
from replog.records import BODY_HEADER, RecordBatch, encode_records, sealed

ONE, TWO = b"\x91\xc4\x01", b"\x92\xc4\x01a\xc4\x02b"
"""A column of one value, and one of two, each cut off: neither is seen without reading every cell."""
SAYS = r"t-0: the batch of offsets 1 to 2 is stored as it was sent, and cannot be decoded \(.*\); go on at offset 3 to leave it out"


def undecodable(count: int = 2) -> RecordBatch:
    """A batch with the right checksum, and no records."""
    column = TWO if count == 2 else ONE
    header = BODY_HEADER.pack(0, 0, 0, count, 5, 5, -1, -1, -1)
    return RecordBatch(sealed([header[4:], len(column).to_bytes(4, "little") + bytes(12), column]))


def world(partitions: int = 1, **config: Any) -> tuple[FakeCluster, Any, Client]:
    """In t-0: a record, two that are none, a record."""
    cluster, driver, client = make({"t": partitions}, **config)
    client.append("t", 0, ["before"])
    cluster.partition("t").append(undecodable())
    client.append("t", 0, ["after"])
    return cluster, driver, client


def texts(records: Any) -> list[str]:
    return [record.text().strip() for record in records]


def is_named(error: UndecodableBatch) -> None:
    assert (error.topic, error.partition, error.base_offset, error.next_offset) == ("t", 0, 1, 3)
    assert (error.code, error.retriable) == (Code.CORRUPT_MESSAGE, False)
    assert isinstance(error, CorruptMessage)
    assert isinstance(error, Rejected)


def test_a_read_gives_what_is_in_front_and_then_says_where_to_go_on() -> None:
    _, _, client = world()
    reading = client.read("t")
    assert next(reading).text() == "before"
    with pytest.raises(UndecodableBatch, match=SAYS) as caught:
        next(reading)
    is_named(caught.value)
    assert texts(client.read("t", stop=1)) == ["before"]
    assert texts(client.read("t", start=caught.value.next_offset)) == ["after"]


def test_a_fetch_gives_what_is_in_front_or_says_where_to_go_on() -> None:
    cluster, driver, client = world()
    assert texts(client.fetch("t", 0, 0)) == ["before"]
    for offset in (1, 2):
        began = driver.now_ms()
        with pytest.raises(UndecodableBatch, match=SAYS) as caught:
            client.fetch("t", 0, offset)
        is_named(caught.value)
        assert driver.now_ms() == began, "it is asked for again"
    assert texts(client.fetch("t", 0, 3)) == ["after"]
    assert cluster.counts["Fetch"] == 4


def test_the_log_of_the_cluster_may_begin_with_it_or_with_a_batch_of_its_own() -> None:
    for begins in ([], [1 << 6]):
        cluster, _, client = make({"t": 1})
        for attributes in begins:
            cluster.partition("t").append(RecordBatch(encode_records([b"marker"], now_ms=1, attributes=attributes)))
        cluster.partition("t").append(undecodable(1))
        at = len(begins)
        for again in (0, at):
            with pytest.raises(UndecodableBatch, match=f"offsets {at} to {at} is stored as it was sent") as caught:
                client.fetch("t", 0, again)
            assert (caught.value.base_offset, caught.value.next_offset) == (at, at + 1)


def test_a_time_that_it_may_have() -> None:
    """The leader goes by the times in headers: which record it is has to be looked up."""
    cluster, _, client = make({"t": 1})
    cluster.partition("t").append(undecodable())
    client.append("t", 0, ["after"])
    with pytest.raises(UndecodableBatch, match=r"t-0: the batch of offsets 0 to 1 ") as caught:
        client.offset("t", 0, datetime.fromtimestamp(0, UTC))
    assert caught.value.next_offset == 2
    assert client.offset("t", 0, datetime.fromtimestamp(1, UTC)) == 2


def test_damage_in_an_answer_comes_after_what_is_in_front_of_it() -> None:
    """The rest is asked for again, as ever."""
    cluster, _, client = make({"t": 1})
    for text in "ab":
        client.append("t", 0, [text])
    damaged: list[bool] = []

    def override(message: Any, broker: int) -> Any:
        if not isinstance(message, Fetch) or len(damaged) == 3:
            return None
        damaged.append(message.verify)
        answer = cluster._fetched(broker, message.entries[0])
        data = bytearray(answer.slices[-1].view())
        data[-1] ^= 1
        answer.slices[-1] = type(answer.slices[-1])(answer.slices[-1].base_offset, answer.slices[-1].end_offset, bytes(data))
        return [Fetched(message.request, 0, -1, 0, [answer])]

    cluster.override = override
    assert texts(client.fetch("t", 0, 0)) == ["a"]
    assert texts(client.fetch("t", 0, 1)) == ["b"]
    assert damaged == [False, False, True]


# ---------------------------------------------------------------------------------------------------------------- consumers


def raises(consumer: Consumer) -> None:
    with pytest.raises(UndecodableBatch, match=SAYS) as caught:
        consumer.poll(timeout_s=3)
    is_named(caught.value)


def test_a_consumer_stays_where_it_is_until_it_is_told_to_go_on() -> None:
    _, driver, client = world()
    with client.consumer("t", start="earliest") as consumer:
        assert texts(consumer.poll(timeout_s=3)) == ["before"]
        began = driver.now_ms()
        for _ in range(3):
            raises(consumer)
            assert consumer.position("t", 0) == 1
        assert driver.now_ms() == began
        consumer.seek("t", 0, 2)  # into it
        raises(consumer)
        assert consumer.position("t", 0) == 2
        consumer.seek("t", 0, 3)
        assert texts(consumer.poll(timeout_s=3)) == ["after"]


def test_one_that_iterates_is_told_too() -> None:
    _, _, client = world()
    consumer = client.consumer("t", start="earliest")
    assert next(iter(consumer)).text() == "before"
    for _ in range(2):
        with pytest.raises(UndecodableBatch, match=SAYS):
            next(iter(consumer))
    assert consumer.position("t", 0) == 1


def polled(consumer: Consumer) -> list[str]:
    """What a poll gives; of a failure, which partition it is about."""
    try:
        return texts(consumer.poll(max_records=1, timeout_s=60))
    except UndecodableBatch as error:
        return [f"{error.topic}-{error.partition} to {error.next_offset}"]
    except UnknownTopicOrPartition as error:
        return [f"{error.topic} is unknown"]


@pytest.mark.parametrize("partitions", [[0, 1], [1, 0]])
@pytest.mark.parametrize("fetch_bytes", [1 << 10, 1 << 20])
def test_other_partitions_go_on_being_delivered(partitions: list[int], fetch_bytes: int) -> None:
    """In turns with the error, so that neither hides the other; whether they have all of it at hand or have to ask each time."""
    _, _, client = world(2, fetch_bytes=fetch_bytes)
    for n in range(5):
        client.append("t", 1, [str(n) + 1_100 * " "])
    with client.consumer("t", partitions=partitions, start="earliest") as consumer:
        told = [polled(consumer) for _ in range(7)]
        assert told == [["0"], ["before"], ["t-0 to 3"], ["1"], ["t-0 to 3"], ["2"], ["t-0 to 3"]]
        consumer.pause("t", 0)
        assert [polled(consumer) for _ in range(2)] == [["3"], ["4"]]
        consumer.resume("t", 0)
        raises(consumer)


def test_what_is_at_hand_of_a_paused_partition_hides_no_error() -> None:
    _, _, client = world(2)
    for n in range(5):
        client.append("t", 1, [str(n)])
    with client.consumer("t", start="earliest") as consumer:
        assert [polled(consumer) for _ in range(2)] == [["0"], ["before"]]
        consumer.pause("t", 1)
        assert [polled(consumer) for _ in range(3)] == [["t-0 to 3"]] * 3


def test_a_position_that_has_to_be_looked_up_in_it() -> None:
    """Also while records of another partition are handed out before it is said again."""
    cluster, _, client = make({"t": 2})
    cluster.partition("t").append(undecodable())
    client.append("t", 1, ["a"])
    with client.consumer("t", start=datetime.fromtimestamp(0, UTC)) as consumer:
        assert [polled(consumer) for _ in range(2)] == [["t-0 to 2"], ["a"]]
        for _ in range(2):
            with pytest.raises(UndecodableBatch):
                consumer.position("t", 0, timeout_s=3)
        assert polled(consumer) == ["t-0 to 2"]
        consumer.seek("t", 0, 2)
        assert consumer.position("t", 0) == 2


def test_two_partitions_with_one_are_both_told_of() -> None:
    cluster, _, client = world(2)
    cluster.partition("t", 1).append(undecodable(1))
    with client.consumer("t", start="earliest") as consumer:
        assert sorted([polled(consumer), polled(consumer)]) == [["before"], ["t-1 to 1"]]
        consumer.pause("t", 1)
        assert polled(consumer) == ["t-0 to 3"]
        consumer.seek("t", 0, 3)
        consumer.resume("t", 1)
        assert sorted([polled(consumer), polled(consumer)]) == [["after"], ["t-1 to 1"]]


def test_a_topic_that_is_deleted_meanwhile_is_told_of_once() -> None:
    cluster, driver, client = make({"t": 1, "u": 1})
    with client.consumer("t", "u", start="earliest") as consumer:
        assert polled(consumer) == []
        cluster.delete("u")
        client.topics()
        cluster.partition("t").append(undecodable(1))
        told = []
        for _ in range(6):
            told += polled(consumer)
            driver.clock.advance(60_000)
        assert sorted(set(told)) == ["t-0 to 1", "u is unknown"]
        assert told.count("u is unknown") == 1


def test_it_can_be_sent_to_another_process() -> None:
    error = UndecodableBatch("t", 0, 1, 3, "no columns")
    again = copy.copy(error)  # as pickle does
    is_named(again)
    assert str(again) == str(error)
