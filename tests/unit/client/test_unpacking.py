"""Readers decode what they are asked for, batch by batch, in their own thread, and nobody waits for that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest
from tests.interrupts import at_every_line, signalled_at
from tests.threads import in_thread
from tests.unit.client.fake import FakeCluster, make
from tests.unit.client.test_undecodable import undecodable

from replog.client import followed, unpacking
from replog.client.client import Client
from replog.client.consumer import Consumer
from replog.client.fetching import FetchOp
from replog.client.unpacking import unpack, unpack_all
from replog.errors import UndecodableBatch, UnknownTopicOrPartition
from replog.records import BatchReader, Record, RecordBatch, encode_records

CONTROL = 1 << 6


def world(*batches: list[str], partitions: int = 1) -> tuple[FakeCluster, Any, Client]:
    """Those batches in t-0."""
    cluster, driver, client = make({"t": partitions})
    for batch in batches:
        client.append("t", 0, batch)
    return cluster, driver, client


def texts(records: Any) -> list[str]:
    return [record.text() for record in records]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first offset of each batch that is decoded."""
    found: list[int] = []

    class Noted(BatchReader):
        def __init__(self, batch: RecordBatch) -> None:
            super().__init__(batch)
            found.append(batch.base_offset)

    monkeypatch.setattr(unpacking, "BatchReader", Noted)
    return found


# ------------------------------------------------------------------------------------------------------------------ pieces


def test_the_records_of_a_batch_from_an_offset_on() -> None:
    cluster, _, client = world()
    client.append("t", 0, [Record(text, headers=[("a", b"")] * 2) for text in "abc"])
    (batch,) = cluster.partition("t").log
    for offset, expected in ((0, "abc"), (2, "c"), (3, "")):
        records, headers = unpack(batch, "t", 0, offset)
        assert (texts(records), [record.offset for record in records], headers) == (list(expected), list(range(offset, 3)), 6)


def fetched(client: Client, offset: int, **given: Any) -> FetchOp:
    op = FetchOp("t", 0, offset, max_bytes=1 << 20, wait_ms=0, deadline_ms=10**9, **given)
    client._do(op)
    return op


def test_all_of_an_answer_up_to_what_cannot_be_decoded() -> None:
    cluster, _, client = world(["a", "b"])
    partition = cluster.partition("t")
    for batch in (undecodable(), RecordBatch(encode_records([b"c"], now_ms=1))):
        partition.epoch += 1
        cluster.version += 1
        partition.append(batch)
    client.topics()
    op = fetched(client, 1)
    assert ([batch.base_offset for batch in op.result.batches], op.result.next_offset) == ([0, 2, 4], 5)
    found = unpack_all(op)
    assert (texts(found.records), found.next_offset, found.high_watermark) == (["b"], 2, 5)
    assert (list(op.result.epochs), list(found.epochs)) == ([(0, 1), (1, 2), (2, 4)], [(0, 1)])
    op = fetched(client, 3, epochs=found.epochs, known_epoch=found.known_epoch)
    with pytest.raises(UndecodableBatch, match="offsets 2 to 3 is stored as it was sent"):
        unpack_all(op)


def test_all_of_an_answer_up_to_so_many_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, client = world()
    for n in range(4):
        client.append("t", 0, [Record(str(n), headers=[("a", b"")] * 2)])
    monkeypatch.setattr(unpacking, "BATCH_HEADERS_MAX", 3)
    found = unpack_all(fetched(client, 0))
    assert (texts(found.records), found.next_offset) == (["0", "1"], 2)


# ----------------------------------------------------------------------------------------------------------------- readers


def test_a_poll_decodes_the_batches_that_it_hands_out(decoded: list[int]) -> None:
    cluster, _, client = world(["a", "b"], ["c", "d"], ["e", "f"])
    consumer = client.consumer("t", start="earliest")
    seen = []
    for most, expected in ((1, "a"), (1, "b"), (3, "cde"), (9, "f")):
        assert texts(consumer.poll(max_records=most)) == list(expected)
        seen.append(list(decoded))
    assert seen == [[0], [0], [0, 2, 4], [0, 2, 4]]
    assert cluster.counts["Fetch"] == 1


def test_who_iterates_and_who_reads_decode_one_batch_at_a_time(decoded: list[int]) -> None:
    _, _, client = world(["a", "b"], ["c", "d"], ["e", "f"])
    readers = iter(client.consumer("t", start="earliest")), client.read("t")
    for records in readers:
        decoded.clear()
        assert texts(islice(records, 2)) == ["a", "b"]
        assert decoded == [0]
        assert texts(islice(records, 1)) == ["c"]
        assert decoded == [0, 2]


def test_a_read_decodes_nothing_behind_its_end(decoded: list[int]) -> None:
    _, _, client = world(["a", "b"], ["c", "d"], ["e", "f"])
    assert texts(client.read("t", start=1, stop=3)) == ["b", "c"]
    assert texts(client.read("t", stop=2)) == ["a", "b"]
    assert decoded == [0, 2, 0]


def test_many_headers_end_a_poll_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed, an answer may hold any number of them."""
    _, _, client = world()
    for n in range(5):
        client.append("t", 0, [Record(str(n), headers=[("a", b"")] * 2), "x"])
    monkeypatch.setattr(followed, "BATCH_HEADERS_MAX", 3)
    consumer = client.consumer("t", start="earliest")
    # The first batch of an answer is unpacked before anybody takes from it.
    assert [texts(consumer.poll()) for _ in range(3)] == [["0", "x", "1", "x", "2", "x"], ["3", "x", "4", "x"], []]


def test_a_position_is_exact_at_the_end_of_a_batch_and_at_that_of_an_answer() -> None:
    cluster, _, client = world(["a", "b"], ["c"])
    cluster.partition("t").append(RecordBatch(encode_records([b"marker"], now_ms=1, attributes=CONTROL)))
    consumer = client.consumer("t", start="earliest")
    positions = []
    for text in "abc":
        assert texts(consumer.poll(max_records=1)) == [text]
        positions.append(consumer.position("t", 0))
    assert positions == [1, 2, 4]


def test_what_is_at_hand_waits_while_a_partition_is_paused(decoded: list[int]) -> None:
    cluster, _, client = world(["a"], ["b"], ["c"])
    consumer = client.consumer("t", start="earliest")
    assert texts(consumer.poll(max_records=1)) == ["a"]
    consumer.pause("t", 0)
    assert consumer.poll(timeout_s=1) == []
    assert decoded == [0]
    consumer.resume("t", 0)
    assert texts(consumer.poll()) == ["b", "c"]
    assert cluster.counts["Fetch"] == 1


def test_a_seek_leaves_nothing_of_what_was_at_hand() -> None:
    _, _, client = world(["a", "b"], ["c"], ["d"])
    consumer = client.consumer("t", start="earliest")
    assert texts(consumer.poll(max_records=1)) == ["a"]
    consumer.seek("t", 0, 3)
    assert texts(consumer.poll()) == ["d"]
    consumer.seek("t", 0, 0)
    assert texts(consumer.poll(max_records=2)) == ["a", "b"]
    consumer.seek("t", 0, 1)
    assert texts(consumer.poll()) == ["b", "c", "d"]


def test_what_was_fetched_of_a_deleted_topic_is_handed_out_batch_by_batch() -> None:
    cluster, _, client = make({"t": 1, "u": 1})
    for text in "ab":
        client.append("t", 0, [text])
    consumer = client.consumer("t", "u", start="earliest")
    assert texts(consumer.poll(max_records=1)) == ["a"]
    cluster.delete("t")
    client.topics()
    assert texts(consumer.poll()) == ["b"]


def test_what_waits_in_a_paused_partition_of_a_deleted_topic_is_handed_out_later() -> None:
    cluster, _, client = make({"t": 2, "u": 1})
    for text in "ab":
        client.append("t", 0, [text])
    consumer = client.consumer("t", "u", start="earliest")
    assert texts(consumer.poll(max_records=1)) == ["a"]
    consumer.pause("t", 0)
    cluster.delete("t")
    client.topics()
    with pytest.raises(UnknownTopicOrPartition):
        consumer.poll(timeout_s=5)
    consumer.resume("t", 0)
    assert texts(consumer.poll()) == ["b"]


# ------------------------------------------------------------------------------------------------- what cannot be decoded


def test_a_batch_that_cannot_be_decoded_takes_back_what_was_known_of_it() -> None:
    """Of the epoch that it began, too: the next question is for the batch, and about what is in front of it."""
    cluster, _, client = world(["a"], partitions=2)
    partition = cluster.partition("t")
    partition.epoch += 1
    cluster.version += 1
    partition.append(undecodable())
    client.topics()
    consumer = client.consumer("t", start="earliest")
    assert texts(consumer.poll()) == ["a"]
    with pytest.raises(UndecodableBatch):
        consumer.poll()
    found = consumer._partitions["t", 0]
    assert (found.offset, found.fetch_offset, list(found.epochs)) == (1, 1, [(0, 0)])


def test_it_is_asked_for_once_each_time_that_it_is_told() -> None:
    cluster, _, client = world(["a"], partitions=2)
    cluster.partition("t").append(undecodable())
    for n in range(5):
        client.append("t", 1, [str(n)])
    consumer = client.consumer("t", start="earliest")
    told: list[Any] = []
    while len(told) < 8:
        try:
            told += texts(consumer.poll(max_records=1))
        except UndecodableBatch as error:
            told.append(error.base_offset)
    assert told == ["0", "a", 1, "1", 1, "2", 1, "3"]
    assert cluster.counts["Fetch"] == 2 + 3  # both partitions; the batch twice again, and by now once more


def test_a_seek_ends_what_was_about_to_be_told() -> None:
    cluster, _, client = world(["a"], partitions=2)
    cluster.partition("t").append(undecodable())
    client.append("t", 0, ["z"])
    for n in range(3):
        client.append("t", 1, [str(n)])
    consumer = client.consumer("t", start="earliest")
    assert texts(consumer.poll(max_records=1) + consumer.poll(max_records=1)) == ["0", "a"]
    with pytest.raises(UndecodableBatch):
        consumer.poll(max_records=1)
    assert texts(consumer.poll(max_records=1)) == ["1"]  # in turns: next the error again
    consumer.seek("t", 0, 3)
    assert sorted(texts(consumer.poll() + consumer.poll())) == ["2", "z"]


# --------------------------------------------------------------------------------------------------------------- the lock

READERS: dict[str, Callable[[Client, Consumer], Any]] = {
    "poll": lambda _, consumer: consumer.poll(),
    "iterate": lambda _, consumer: list(islice(consumer, 3)),
    "read": lambda client, _: list(client.read("t")),
    "fetch": lambda client, _: client.fetch("t", 0, 0),
}


@pytest.mark.parametrize("name", READERS)
def test_the_lock_is_free_while_a_batch_is_decoded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a `Cluster` it is the lock of all brokers, producers and consumers."""
    _, driver, client = world(["a", "b"], ["c"])
    decoding, taken = threading.Event(), threading.Semaphore(0)

    class Slow(BatchReader):
        def records(self, topic: str = "", partition: int = -1) -> list[Record]:
            decoding.set()
            assert taken.acquire(timeout=30), "nobody else gets the lock"
            return super().records(topic, partition)

    monkeypatch.setattr(unpacking, "BatchReader", Slow)

    def twice() -> None:
        for _ in range(2):
            assert decoding.wait(30)
            decoding.clear()
            with driver.lock:
                taken.release()

    other, outcome = in_thread(twice)
    assert texts(READERS[name](client, client.consumer("t", start="earliest"))) == ["a", "b", "c"]
    other.join()
    assert outcome == [None]


@pytest.mark.parametrize("name", ["poll", "iterate"])
def test_a_quiet_partition_keeps_nothing_of_what_was_handed_out(name: str) -> None:
    _, _, client = world(["a", "b"], ["c"])
    consumer = client.consumer("t", start="earliest")
    assert texts(READERS[name](client, consumer)) == ["a", "b", "c"]
    assert [followed.buffer for followed in consumer._partitions.values()] == [[]]


def test_a_consumer_that_is_closed_keeps_nothing_of_what_was_handed_out() -> None:
    _, _, client = world(["a", "b"], partitions=2)
    client.append("t", 1, ["c"])
    consumer = client.consumer("t", start="earliest")
    assert sorted(texts(consumer.poll())) == ["a", "b", "c"]
    consumer.close()
    assert [followed.buffer for followed in consumer._partitions.values()] == [[], []]


def test_a_batch_for_which_there_is_no_memory_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, client = world(["a", "b"], ["c"], ["d"])

    class Full(BatchReader):
        def records(self, topic: str = "", partition: int = -1) -> list[Record]:
            found = super().records(topic, partition)
            if found[0].text() == "c":
                raise MemoryError
            return found

    monkeypatch.setattr(unpacking, "BatchReader", Full)
    consumer = client.consumer("t", start="earliest")
    assert texts(consumer.poll()) == ["a", "b"]
    for _ in range(2):
        with pytest.raises(MemoryError):
            consumer.poll()
    monkeypatch.undo()
    assert texts(consumer.poll()) == ["c", "d"]


@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_poll_within_an_iteration_takes_what_comes_next(most: int) -> None:
    _, _, client = world(list("abcdefgh"), ["i"])
    consumer = client.consumer("t", start="earliest")
    found: list[str] = []
    for record in consumer:
        found.append(record.text())
        if len(found) in (2, 5):
            found += texts(consumer.poll(max_records=most))
        if len(found) >= 9:
            break
    assert found == list("abcdefghi")


def in_client(frame: Any) -> bool:
    return "/replog/client/" in frame.f_code.co_filename


def crashing(*batches: list[str], partitions: int = 1) -> Client:
    """Those batches in t-0; who is interrupted in the core has it begin anew."""
    _, driver, client = world(*batches, partitions=partitions)
    driver.changing.interrupted = driver.core.crash
    return client


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("most", [1, 6])
def test_an_interrupt_at_any_moment_of_a_poll_loses_nothing_and_repeats_nothing(most: int, is_first: bool) -> None:
    """It takes batch after batch, of several partitions, and asks for more: what it had by then is handed out by the next one."""

    def once(moment: int) -> bool:
        client = crashing(["a", "b"], ["c", "d"], ["e"], partitions=2)
        client.append("t", 1, ["x", "y"])
        consumer = client.consumer("t", start="earliest")
        found: list[str] = []
        poll = lambda: found.extend(texts(consumer.poll(most, timeout_s=20)))  # noqa: E731
        if not is_first:
            poll()
        before = list(found)
        interrupted = signalled_at(moment, in_client, poll)
        assert interrupted == (found == before)
        while len(found) < 7:
            poll()
        assert [one for one in found if one in "abcde"] == list("abcde"), moment
        assert [one for one in found if one in "xy"] == list("xy"), moment
        return interrupted

    assert at_every_line(once) > 60


def test_an_interrupt_at_any_moment_of_an_iteration_loses_nothing_and_repeats_nothing() -> None:
    def once(moment: int) -> bool:
        client = crashing(["a", "b"], ["c", "d"], ["e"], partitions=2)
        client.append("t", 1, ["x", "y"])
        consumer = client.consumer("t", start="earliest")
        found: list[str] = []

        def iterate() -> None:
            for record in consumer:
                found.append(record.text())
                if len(found) == 7:
                    break

        interrupted = signalled_at(moment, in_client, iterate)
        if interrupted:
            iterate()
        assert [one for one in found if one in "abcde"] == list("abcde"), moment
        assert [one for one in found if one in "xy"] == list("xy"), moment
        return interrupted

    assert at_every_line(once) > 300


SEEKS: dict[str, Callable[[Consumer], None]] = {
    "offset": lambda consumer: consumer.seek("t", 0, 0),
    "beginning": lambda consumer: consumer.seek_to_beginning(),
    "earliest": lambda consumer: consumer.seek("t", 0, "earliest"),
    "time": lambda consumer: consumer.seek("t", 0, datetime(2000, 1, 1, tzinfo=UTC)),
    "end": lambda consumer: consumer.seek_to_end(),
    "latest": lambda consumer: consumer.seek("t", 0, "latest"),
}


@pytest.mark.parametrize("name", SEEKS)
def test_an_interrupt_at_any_moment_of_a_seek_while_something_is_asked_lets_nothing_stand_still(name: str) -> None:
    def once(moment: int) -> bool:
        client = crashing(["a", "b"], ["c"])
        consumer = client.consumer("t", start="earliest")
        assert texts(consumer.poll() + consumer.poll()) == list("abc")  # it waits for more: a question is under way
        interrupted = signalled_at(moment, in_client, lambda: SEEKS[name](consumer))
        there = consumer.position("t", 0)
        assert there in (0, 3), moment
        client.append("t", 0, ["d"])
        assert texts(consumer.poll(timeout_s=20) + consumer.poll()) == list("abcd")[there:], moment
        return interrupted

    assert at_every_line(once) > 20


def test_an_interrupt_at_any_moment_of_a_seek_leaves_the_position_or_moves_it() -> None:
    def once(moment: int) -> bool:
        client = crashing(["a", "b"], ["c", "d"], ["e"])
        consumer = client.consumer("t", start="earliest")
        assert texts(consumer.poll(max_records=1)) == ["a"]
        interrupted = signalled_at(moment, in_client, lambda: consumer.seek("t", 0, 3))
        rest = texts(consumer.poll(timeout_s=20))
        assert rest == list("de") or (interrupted and rest == list("bcde")), moment
        assert consumer.position("t", 0) == 5
        return interrupted

    assert at_every_line(once) > 20


@pytest.mark.parametrize("position", ["latest", datetime(2000, 1, 1, tzinfo=UTC)])
def test_an_interrupt_at_any_moment_of_a_seek_to_where_the_leader_says_hides_nothing_that_is_appended_later(position: Any) -> None:
    def once(moment: int) -> bool:
        client = crashing(["a", "b"], ["c"])
        consumer = client.consumer("t", start="earliest")
        assert texts(consumer.poll(max_records=1)) == ["a"]
        interrupted = signalled_at(moment, in_client, lambda: consumer.seek("t", 0, position))
        assert consumer.position("t", 0) in ((3,) if position == "latest" else (0,)) or interrupted
        client.append("t", 0, ["d"])
        rest = texts(consumer.poll(timeout_s=20) + consumer.poll())
        assert rest in ([list("d")] if position == "latest" else [list("abcd")]) or (interrupted and rest == list("bcd")), moment
        return interrupted

    assert at_every_line(once) > 20
