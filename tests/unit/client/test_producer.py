"""The producer: batching, the bound on its buffer, what is reported to whom, interrupts and threads."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.client.fake import make

from replog.client import producer as producing
from replog.client.delivery import Delivery
from replog.client.partitioner import crc32_partition, murmur2_partition
from replog.client.producer import Producer
from replog.errors import (
    Code,
    InvalidRecord,
    MessageTooLarge,
    ReplogError,
    TimedOut,
    TopicAuthorizationFailed,
    Unavailable,
    UnknownTopicOrPartition,
    UsageError,
)
from replog.messages import Metadata, Produce, Produced, ProducedEntry

SENDS: dict[str, Callable[[Producer, bytes], object]] = {
    "send": lambda producer, value: producer.send("t", value),
    "send_many": lambda producer, value: producer.send_many("t", [value]),
}


def raises(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def everything(cluster: Any, topic: str = "t") -> list[bytes]:
    return [value for p in cluster.partitions.values() if p.topic == topic for value in p.values()]


def test_without_linger_a_record_goes_at_once() -> None:
    cluster, _, client = make({"t": 1})
    producer = client.producer()
    delivery = producer.send("t", "a")
    assert delivery.done()
    assert delivery.result() == ("t", 0, 0, 1_700_000_000_000)
    assert repr(delivery) == "Delivery(t-0, stored at 0)"
    assert delivery.exception() is None
    producer.close()
    producer.close()
    with pytest.raises(UsageError, match="this Producer is closed"):
        producer.send("t", "b")
    assert cluster.counts["Produce"] == 1


def test_while_five_batches_are_under_way_records_join_the_next() -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer()
    producer.send("t", "warm")
    cluster.down = {1}
    driver.filter = lambda to, message: isinstance(message, Produce)
    deliveries = [producer.send("t", str(n)) for n in range(50)]
    driver.filter = None
    cluster.down = set()
    producer.flush()
    log = cluster.partition("t").log
    assert len(log) == 7
    assert [d.result().offset for d in deliveries] == list(range(1, 51))


def test_a_record_that_comes_when_its_partition_is_refused_takes_no_room_for_ever() -> None:
    """The full batch before it is sent first. That may bring the news that there is no such partition: the record is in the next batch."""
    cluster, driver, client = make({"t": 1})
    producer = client.producer(batch_bytes=64, linger_ms=1_000)
    first = producer.send("t", b"x" * 40)
    writer, run = producer._writer, driver.run

    def refusing() -> None:
        driver.run = run  # type: ignore[method-assign]
        for queue in list(writer.queues.values()):
            queue.refuse_all(UnknownTopicOrPartition("no such partition now"))
        run()

    driver.run = refusing  # type: ignore[method-assign]
    second = producer.send("t", b"y" * 40)
    assert isinstance(first.exception(), Unavailable)  # it was sent
    driver.pass_time(1_000)
    assert second.done()
    assert writer.buffered == 0
    assert b"y" * 40 in everything(cluster)


def test_who_may_not_write_is_told_so() -> None:
    cluster, _, client = make({"t": 1})
    cluster.override = lambda message, broker: (
        [Produced([ProducedEntry(entry.request, Code.TOPIC_AUTHORIZATION_FAILED) for entry in message.entries])]
        if isinstance(message, Produce)
        else None
    )
    for call in (lambda: client.append("t", 0, ["no"]), lambda: client.producer().send("t", "no").result()):
        with pytest.raises(TopicAuthorizationFailed, match="t-0: this client may not write topic 't': the brokers' authorizer does not"):
            call()


def test_failures_that_nobody_asks_for_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a producer that never flushes, and whose callbacks only count."""
    monkeypatch.setattr(producing, "_FAILED_MAX", 10)
    cluster, _, client = make({"t": 1})
    producer = client.producer()
    producer.send("t", "stored").result()
    cluster.override = lambda message, broker: (
        [Produced([ProducedEntry(e.request, Code.INVALID_RECORD) for e in message.entries])] if isinstance(message, Produce) else None
    )
    called: list[Delivery] = []
    for _ in range(50):
        producer.send("t", "x").add_done_callback(called.append)
    assert len(called) == 50
    assert len(producer._writer.failed) <= 11
    for delivery in called[:20]:  # those that were kept, and more: the others are still raised
        assert isinstance(delivery.exception(), InvalidRecord)
    with pytest.raises(InvalidRecord) as caught:
        producer.flush()
    assert caught.value.__notes__ == ["29 more batches of this producer failed"]
    producer.flush()
    producer.send("t", "last").add_done_callback(called.append)
    with pytest.raises(InvalidRecord) as caught:
        producer.flush()
    assert not getattr(caught.value, "__notes__", [])


ASKED: dict[str, Callable[[Delivery], object]] = {
    "result": lambda delivery: fails(delivery.result),
    "exception": lambda delivery: delivery.exception(),
    "a future": lambda delivery: fails(delivery.future().result),
    "a callback of a future": lambda delivery: delivery.future().add_done_callback(lambda future: None),
}


@pytest.mark.parametrize("how", ASKED)
def test_nor_is_one_that_was_not_kept_raised_when_somebody_was_told_of_it(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(producing, "_FAILED_MAX", 10)
    cluster, _, client = make({"t": 1})
    refuse_everything(cluster)
    producer = client.producer()
    sent = [producer.send("t", "x") for _ in range(50)]
    for delivery in [*sent, *sent]:
        ASKED[how](delivery)
    producer.flush()
    sent = [producer.send("t", "x") for _ in range(50)]
    for delivery in sent[:45]:
        ASKED[how](delivery)
    with pytest.raises(InvalidRecord) as caught:
        producer.flush()
    assert caught.value.__notes__ == ["4 more batches of this producer failed"]
    sent += [producer.send("t", "x") for _ in range(50)]
    for delivery in sent[:50]:
        ASKED[how](delivery)  # those of before: raised by that flush
    for delivery in sent[52:]:
        ASKED[how](delivery)
    with pytest.raises(InvalidRecord) as caught:
        producer.flush()
    assert caught.value.__notes__ == ["1 more batches of this producer failed"]
    producer.close()


def test_of_failures_that_were_not_kept_none_that_was_told_stands_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "_FAILED_MAX", 10)
    cluster, _, client = make({"t": 1})
    refuse_everything(cluster)
    producer = client.producer()
    sent = [producer.send("t", "x") for _ in range(50)]
    for delivery in [*sent[:10], *sent[20:]]:
        delivery.exception()
    with pytest.raises(Unavailable, match="a batch of this producer failed, with what was not kept") as caught:
        producer.flush()
    assert caught.value.__notes__ == ["9 more batches of this producer failed"]
    producer.close()


@pytest.mark.parametrize("how", [lambda p: p.send("t", "a"), lambda p: p.send_many("t", ["a", "b"], keys=["k", "k"])])
def test_what_was_taken_is_not_refused_for_want_of_a_connection(monkeypatch: pytest.MonkeyPatch, how: Callable[[Producer], Any]) -> None:
    """It would be stored later although `send` had raised."""
    cluster, driver, client = make({"t": 1})
    client.topics()
    producer = client.producer()

    def refuse() -> None:
        raise Unavailable("no connection can be opened: too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(driver, "run", refuse)
        sent = how(producer)
        assert not sent.done()
        with pytest.raises(Unavailable, match="no connection can be opened"):
            producer.flush()
    assert everything(cluster) == []
    producer.close()
    assert sent.exception() is None
    assert everything(cluster)[0] == b"a"


def test_what_cannot_be_looked_after_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    producer = client.producer(linger_ms=60_000)

    def refuse() -> None:
        raise MemoryError

    for send in (lambda: producer.send("t", "a"), lambda: producer.send_many("t", ["a"])):
        with monkeypatch.context() as patched:
            patched.setattr(driver, "attend", refuse)
            with pytest.raises(MemoryError):
                send()
        producer.flush(timeout_s=0)
    producer.send("t", "b")
    producer.close()
    assert everything(cluster) == [b"b"]


def test_a_batch_begun_while_answers_come_in_gets_its_record() -> None:
    """Those before it have left room for another: it is not taken for a batch that is due before anything is in it."""
    cluster, driver, client = make({"t": 1})
    producer = client.producer(batch_bytes=64)
    producer.send("t", f"{0:040}").result()
    cluster.paused = {1}
    deliveries = [producer.send("t", f"{n:040}") for n in range(1, 7)]
    driver.resume()
    deliveries.append(producer.send("t", f"{7:040}"))
    producer.flush()
    assert [delivery.result(1).offset for delivery in deliveries] == list(range(1, 8))
    assert everything(cluster) == [b"%040d" % n for n in range(8)]
    assert producer._writer.buffered == 0
    producer.close()


def test_linger_is_found_by_the_next_send_a_tick_a_result_or_a_flush() -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer(linger_ms=100)
    first = producer.send("t", "a")
    driver.run()
    assert not first.done()
    assert driver.core.deadline_ms() == driver.now_ms() + 100
    driver.pass_time(100)
    assert first.done()
    second = producer.send("t", "b")
    driver.clock.advance(100)
    third = producer.send("t", "c")
    assert second.done()
    assert third.done()
    assert producer.send("t", "d").result().offset == 3
    last = producer.send("t", "e")
    producer.flush()
    assert last.done()
    assert [b.count for b in cluster.partition("t").log] == [1, 2, 1, 1]
    producer.close()


@pytest.mark.parametrize("how", ["send", "send_many"])
def test_nothing_lingers_longer_while_each_record_begins_a_batch(how: str) -> None:
    """Nobody else drives the client while it is called without a pause, and no record finds its own batch overdue."""
    cluster, driver, client = make({"t": 50})
    producer = client.producer(linger_ms=10)
    client.topics()
    sent: list[Any] = []
    for number in range(50):
        sent.append(producer.send("t", "x", partition=number) if how == "send" else producer.send_many("t", ["x"], partition=number))
        assert [n for n, one in enumerate(sent) if one.done()] == list(range(number - 9))
        driver.clock.advance(1)
    producer.close()
    assert len(everything(cluster)) == 50


def test_those_that_are_overdue_together_share_their_messages() -> None:
    cluster, driver, client = make({"t": 9})
    producer = client.producer(linger_ms=10)
    client.topics()
    sent = [producer.send("t", "x", partition=number) for number in range(8)]
    driver.clock.advance(10)
    last = producer.send("t", "x", partition=8)
    assert [one.done() for one in sent] == [True] * 8
    assert not last.done()
    assert cluster.counts["Produce"] == 3  # one for each leader
    producer.close()


def test_a_full_batch_goes_without_waiting() -> None:
    cluster, _, client = make({"t": 1})
    with client.producer(linger_ms=60_000, batch_bytes=1_000) as producer:
        for n in range(95):
            producer.send("t", f"{n:080}")
        assert len(everything(cluster)) == 90
    assert [b.count for b in cluster.partition("t").log] == [10] * 9 + [5]


def test_keys_choose_the_partition_and_keyless_records_take_turns() -> None:
    cluster, _, client = make({"t": 4})
    with client.producer() as producer:
        for n in range(40):
            place = producer.send("t", "v", key=f"k{n}").result()
            assert place.partition == crc32_partition(f"k{n}".encode(), 4)
        turns = [producer.send("t", "v").result().partition for _ in range(8)]
        assert sorted(turns[:4]) == [0, 1, 2, 3]
        assert turns[:4] == turns[4:]
        assert producer.send("t", "v", key="k", partition=2).result().partition == 2
    with client.producer(partitioner="murmur2") as producer:
        assert producer.send("t", "v", key=b"abc").result().partition == murmur2_partition(b"abc", 4)
    with client.producer(linger_ms=1_000) as producer:
        stuck = [producer.send("t", "v") for _ in range(20)]
    assert len({d.result().partition for d in stuck}) == 1
    assert cluster.counts["Produce"] > 40


def test_records_carry_key_headers_and_time() -> None:
    _, _, client = make({"t": 1})
    with client.producer(linger_ms=10) as producer:
        plain = producer.send("t", "plain")
        full = producer.send("t", "full", key="k", headers=(pair for pair in [("h", b"1")]), timestamp_ms=5)
        empty = producer.send("t")
    assert full.result().timestamp_ms == 5
    assert plain.result().timestamp_ms == empty.result().timestamp_ms == 1_700_000_000_000
    records = list(client.read("t"))
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in records] == [
        (None, b"plain", [], 1_700_000_000_000),
        (b"k", b"full", [("h", b"1")], 5),
        (None, None, [], 1_700_000_000_000),
    ]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"value": 3}, "a value is bytes, str or None, not int"),
        ({"value": "\ud800"}, "not valid Unicode"),
        ({"key": 1.5}, "a key is bytes, str or None, not float"),
        ({"headers": [("a", 1)]}, "header"),
        ({"headers": {"ab": b"1"}}, "headers are a list of"),
        ({"timestamp_ms": -1}, "timestamp_ms is -1"),
        ({"partition": -1}, "partition -1"),
        ({"topic": "a b"}, "' '"),
    ],
)
def test_wrong_records_are_refused_alone(options: dict[str, Any], match: str) -> None:
    cluster, _, client = make({"t": 1})
    with client.producer(linger_ms=10) as producer:
        producer.send("t", "good")
        with pytest.raises(UsageError, match=match):
            producer.send(**{"topic": "t", **options})
        assert producer._writer.buffered == len("good") + 20
    assert everything(cluster) == [b"good"]


def test_unknown_topics_and_sizes_are_refused_before_anything_is_buffered() -> None:
    _, _, client = make({"t": 2}, max_record_bytes=100)
    with client.producer(buffer_bytes=1_024) as producer:
        with pytest.raises(UnknownTopicOrPartition, match="unknown topic 'u'; known topics are t"):
            producer.send("u", "a")
        with pytest.raises(UnknownTopicOrPartition, match="no partition 2; it has 0, 1"):
            producer.send("t", "a", partition=2)
        with pytest.raises(MessageTooLarge, match="a record of 101 bytes is too large; max_record_bytes is 100"):
            producer.send("t", b"x" * 101)
        with pytest.raises(MessageTooLarge, match="101 bytes"):
            producer.send_many("t", [b"x" * 101])
        assert producer._writer.buffered == 0


def test_a_record_that_no_buffer_holds_is_refused_with_what_it_counts_for() -> None:
    _, _, client = make({"t": 1}, max_record_bytes=1_020)
    text = "a record of 1010 bytes is too large; it takes 1030 of the buffer, and buffer_bytes is 1024"
    with client.producer(buffer_bytes=1_024, linger_ms=60_000) as producer:
        producer.send("t", "a")
        for send in SENDS.values():
            with pytest.raises(MessageTooLarge, match=f"^{text}"):
                send(producer, b"x" * 1_010)
            with pytest.raises(MessageTooLarge, match=r"^a record of 1021 bytes is too large; max_record_bytes is 1020"):
                send(producer, b"x" * 1_021)
        assert producer._writer.buffered == 21, "nothing had to go for it"
        producer.send("t", b"x" * 1_004).result()
    with client.producer(buffer_bytes=1_024) as producer, pytest.raises(MessageTooLarge, match=f"^{text}"):
        producer.send_many("t", [b"x", b"x" * 1_010])


def test_a_full_buffer_blocks_and_then_says_so() -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer(buffer_bytes=2_000, max_block_ms=3_000)
    producer.send("t", "warm")
    driver.filter = lambda to, message: isinstance(message, Produce)
    for _ in range(19):
        producer.send("t", b"x" * 80)
    started = driver.now_ms()
    with pytest.raises(Unavailable, match=r"waited 3 s for room: 1900 bytes are buffered, buffer_bytes is 2000; the record was not sent"):
        producer.send("t", b"y" * 90)
    assert driver.now_ms() - started == 3_000
    driver.filter = None
    assert driver.wait(lambda: producer._writer.buffered == 0, 60)
    producer.send("t", b"z" * 90)
    producer.close()
    assert len(everything(cluster)) == 21


@pytest.mark.parametrize("how", SENDS)
def test_room_that_another_thread_has_taken_is_waited_for_again(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    _, driver, client = make({"t": 1})
    producer = client.producer(buffer_bytes=2_000, max_block_ms=3_000)
    producer.send("t", "warm").result()
    writer, waits = producer._writer, []
    writer.buffered = 1_900

    def taken(done: Callable[[], bool], timeout_s: float) -> bool:
        waits.append(timeout_s)
        driver.clock.advance(1_000)
        writer.buffered = 0
        assert done()
        writer.buffered = 1_900  # by a thread that was waiting as well, and has the lock first
        return True

    with monkeypatch.context() as patched:
        patched.setattr(driver, "wait", taken)
        with pytest.raises(Unavailable, match="waited 3 s for room: 1900 bytes are buffered"):
            SENDS[how](producer, b"x" * 900)
    assert waits == [3, 2, 1]
    assert writer.buffered == 1_900
    writer.buffered = 0
    SENDS[how](producer, b"x" * 900)
    producer.close()


@pytest.mark.parametrize("how", SENDS)
def test_who_waits_for_room_takes_none_of_a_producer_that_is_closed_meanwhile(how: str) -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer(buffer_bytes=2_000)
    producer.send("t", "warm").result()
    driver.filter = lambda to, message: isinstance(message, Produce)
    producer.send("t", b"x" * 1_900)

    def close() -> None:
        with pytest.raises(TimedOut):
            producer.close(timeout_s=0)
        driver.filter = None

    driver.events = [close]
    with pytest.raises(UsageError, match="this Producer is closed"):
        SENDS[how](producer, b"y" * 900)
    producer.flush()
    assert everything(cluster) == [b"warm", b"x" * 1_900]


def test_what_is_sent_while_a_producer_closes_is_waited_for_or_refused() -> None:
    cluster, _, client = make({"t": 1})
    producer = client.producer(linger_ms=60_000)
    refused: list[BaseException] = []

    def send_once_more(first: Delivery) -> None:
        producer.send("t", "b").add_done_callback(send_in_vain)

    def send_in_vain(second: Delivery) -> None:
        with pytest.raises(UsageError, match="this Producer is closed") as caught:
            producer.send("t", "c")
        refused.append(caught.value)

    producer.send("t", "a").add_done_callback(send_once_more)
    producer.close()
    assert everything(cluster) == [b"a", b"b"]
    assert len(refused) == 1


def test_a_wrong_argument_does_not_close() -> None:
    cluster, _, client = make({"t": 1})
    with client.producer(linger_ms=60_000) as producer:
        producer.send("t", "a")
        with pytest.raises(UsageError, match="timeout_s is -1"):
            producer.close(timeout_s=-1)
    assert everything(cluster) == [b"a"]


def test_a_producer_that_never_blocks_sends_to_topics_that_its_client_knows() -> None:
    cluster, _, client = make({"t": 1})
    with client.producer(max_block_ms=0) as producer:
        for _ in range(3):
            with pytest.raises(TimedOut, match=r"waited 0 s for .* topic 't'"):
                producer.send("t", "a")
        assert client.partitions_for("t") == [0]
        producer.send("t", "b")
    assert everything(cluster) == [b"b"]


def test_a_full_buffer_sends_what_lingers() -> None:
    cluster, driver, client = make({"t": 1})
    started = driver.now_ms()
    with client.producer(buffer_bytes=1_024, linger_ms=60_000) as producer:
        for n in range(100):
            producer.send("t", b"%080d" % n)
    assert driver.now_ms() == started
    assert everything(cluster) == [b"%080d" % n for n in range(100)]


def test_send_many_fills_batches_in_order() -> None:
    cluster, _, client = make({"t": 3})
    with client.producer(batch_bytes=1_000) as producer:
        deliveries = producer.send_many("t", [f"{n:080}" for n in range(95)])
        receipts = deliveries.result()
        assert len(deliveries) == 95
        assert sum((r.last_offset or 0) - (r.base_offset or 0) + 1 for r in receipts) == 95
        offsets = [(d.result().partition, d.result().offset) for d in deliveries]
        for n, (partition, offset) in enumerate(offsets):
            assert client.fetch("t", partition, offset or 0)[0].text() == f"{n:080}"
        assert producer.send_many("t", []).result() == []
        with pytest.raises(UsageError, match="values is a list of values, not one str"):
            producer.send_many("t", "abc")
        with pytest.raises(UsageError, match="2 values, but 1 keys"):
            producer.send_many("t", ["a", "b"], keys=["k"])
    assert max(b.count for p in cluster.partitions.values() for b in p.log) == 10


def test_as_many_batches_as_may_be_under_way_share_a_message() -> None:
    cluster, _, client = make({"t": 1})
    with client.producer(batch_bytes=1_000) as producer:
        producer.send_many("t", ["first"]).result()
        before = cluster.counts["Produce"]
        producer.send_many("t", [b"%080d" % n for n in range(120)]).result()
    assert cluster.counts["Produce"] - before == 3
    assert [b.count for b in next(iter(cluster.partitions.values())).log] == [1] + [10] * 12


@pytest.mark.parametrize("keys", [None, ["a", None] * 4 + ["b"]])
@pytest.mark.parametrize("at", [0, 1, 4, 8])
def test_of_many_with_one_that_is_too_large_nothing_is_stored(at: int, keys: list[str | None] | None) -> None:
    cluster, _, client = make({"t": 3}, max_record_bytes=100)
    values = [b"x" * 90] * 8
    values.insert(at, b"x" * 101)
    for options in ({}, {"batch_bytes": 300}, {"linger_ms": 10}):
        producer = client.producer(**options)  # type: ignore[arg-type]
        with pytest.raises(MessageTooLarge, match=r"a record of 10[12] bytes is too large; max_record_bytes is 100"):
            producer.send_many("t", values, keys=keys)
        assert producer._writer.buffered == 0
        producer.close()
    assert everything(cluster) == []


def test_of_many_with_one_that_the_buffer_never_holds_nothing_is_stored() -> None:
    cluster, _, client = make({"t": 1})
    with client.producer(buffer_bytes=1_024) as producer, pytest.raises(MessageTooLarge, match="buffer_bytes is 1024"):
        producer.send_many("t", [b"x" * 900, b"x" * 900, b"x" * 1_025])
    assert everything(cluster) == []


def test_many_that_find_no_room_say_how_many_were_taken_and_those_are_stored() -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer(batch_bytes=300, buffer_bytes=1_024, max_block_ms=3_000)
    client.topics()
    driver.filter = lambda to, message: isinstance(message, Produce)
    with pytest.raises(Unavailable, match=r"^10 of 20 records were taken and are on their way, .*: waited 3 s for room"):
        producer.send_many("t", [b"%080d" % n for n in range(20)])
    with pytest.raises(Unavailable, match=r"^waited 3 s for room.*the record was not sent"):
        producer.send_many("t", [b"%0200d" % n for n in range(20)])
    driver.filter = None
    producer.close()
    assert everything(cluster) == [b"%080d" % n for n in range(10)]


def test_many_whose_topic_goes_when_some_were_taken_are_not_refused() -> None:
    """After a Rejected nothing was stored."""
    cluster, driver, client = make({"t": 1, "other": 1})
    producer = client.producer(batch_bytes=300, buffer_bytes=1_024)
    client.topics()
    driver.filter = lambda to, message: isinstance(message, Produce)
    driver.events = [lambda: None, lambda: cluster.delete("t"), lambda: setattr(driver, "filter", None)]
    with pytest.raises(Unavailable, match=r"^10 of 20 records were taken .* unknown topic 't'") as caught:
        producer.send_many("t", [b"%080d" % n for n in range(20)])
    assert isinstance(caught.value.__cause__, UnknownTopicOrPartition)
    with pytest.raises(ReplogError):  # nobody was told what became of those that were taken
        producer.close()


def test_many_of_which_all_were_taken_have_handles_although_the_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    producer = client.producer(batch_bytes=300)
    driver.filter = lambda to, message: isinstance(message, Produce)
    go = producer._go_all

    def closed_before(sealed: list[Any]) -> None:
        if len(sealed) == 2:
            close_driver(driver)
            monkeypatch.setattr(driver, "run", raises(UsageError("this Client is closed")))
        go(sealed)

    monkeypatch.setattr(producer, "_go_all", closed_before)
    sent = producer.send_many("t", [b"%080d" % n for n in range(6)])
    assert (len(sent), sent.done()) == (6, True)
    assert isinstance(sent.exception(), Unavailable)
    producer.close()  # they were told of


def test_many_that_find_no_room_say_so_also_when_the_client_is_closed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    producer = client.producer(batch_bytes=300, buffer_bytes=1_024)
    driver.filter = lambda to, message: isinstance(message, Produce)
    driver.events = [lambda: close_driver(driver), lambda: monkeypatch.setattr(driver, "run", raises(UsageError("this Client is closed")))]
    with pytest.raises(Unavailable, match=r"^\d+ of 20 records were taken .* this Client is closed"):
        producer.send_many("t", [b"%080d" % n for n in range(20)])
    with pytest.raises(Unavailable):
        producer.close()


def test_send_many_with_keys_keeps_each_key_in_order() -> None:
    _, _, client = make({"t": 3})
    keys = [f"k{n % 7}" if n % 5 else None for n in range(60)]
    with client.producer(linger_ms=5) as producer:
        deliveries = list(producer.send_many("t", [str(n) for n in range(60)], keys=keys))
    for n, delivery in enumerate(deliveries):
        place = delivery.result()
        record = client.fetch("t", place.partition, place.offset or 0)[0]
        assert (record.text(), record.key) == (str(n), keys[n].encode() if keys[n] else None)
        if keys[n]:
            assert place.partition == crc32_partition(str(keys[n]).encode(), 3)
    with client.producer() as producer:
        assert {r.partition for r in producer.send_many("t", ["a", "b"], keys=["x", "y"], partition=1).result()} == {1}


def test_send_many_larger_than_the_buffer_goes_through() -> None:
    cluster, _, client = make({"t": 1})
    with client.producer(buffer_bytes=2_000, batch_bytes=5_000) as producer:
        producer.send_many("t", [b"%080d" % n for n in range(500)]).result()
        assert producer._writer.buffered == 0
    assert everything(cluster) == [b"%080d" % n for n in range(500)]


def refuse_everything(cluster: Any) -> None:
    cluster.override = lambda m, b: [Produced([ProducedEntry(e.request, 87) for e in m.entries])] if isinstance(m, Produce) else None


def test_leaving_the_block_raises_what_failed_and_was_not_reported() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["warm"])
    refuse_everything(cluster)
    with pytest.raises(InvalidRecord, match="t-0") as caught, client.producer(linger_ms=10) as producer:
        producer.send("t", "a")
    assert caught.value.partition == 0
    with client.producer() as producer:
        delivery = producer.send("t", "a")
        with pytest.raises(InvalidRecord):
            delivery.result()
    with client.producer() as producer:
        assert isinstance(producer.send("t", "a").exception(), InvalidRecord)
    with client.producer() as producer:
        assert isinstance(producer.send_many("t", ["a"]).exception(), InvalidRecord)
    producer = client.producer()
    producer.send("t", "a")
    producer.send("t", "b")
    with pytest.raises(InvalidRecord) as caught:
        producer.flush()
    assert caught.value.__notes__ == ["1 more batches of this producer failed"]
    producer.close()


LEARNED: dict[str, Callable[[Delivery], object]] = {
    "the delivery's exception": lambda delivery: delivery.exception(),
    "a callback that asks": lambda delivery: delivery.add_done_callback(Delivery.exception),
    "the future's exception": lambda delivery: delivery.future().exception(0),
    "the future's result": lambda delivery: fails(delivery.future().result),
    "the future's callback": lambda delivery: delivery.future().add_done_callback(lambda future: None),
    "asyncio": lambda delivery: fails(lambda: asyncio.run(waited_for(delivery))),
}
NOT_LEARNED: dict[str, Callable[[Delivery], object]] = {
    "done": lambda delivery: delivery.done(),
    "a callback that does not ask": lambda delivery: delivery.add_done_callback(lambda delivery: None),
    "a future that nobody looks at": lambda delivery: delivery.future(),
    "a future that is just done": lambda delivery: delivery.future().done(),
}


def fails(ask: Callable[[], object]) -> None:
    with pytest.raises(InvalidRecord):
        ask()


async def waited_for(delivery: Delivery) -> None:
    await asyncio.wrap_future(delivery.future())


@pytest.mark.parametrize("how", LEARNED)
def test_what_somebody_has_learned_is_not_kept_nor_raised_again(how: str) -> None:
    cluster, _, client = make({"t": 1})
    refuse_everything(cluster)
    with client.producer() as producer:
        for _ in range(20):
            LEARNED[how](producer.send("t", "a"))
            assert not producer._writer.failed
        producer.flush()


@pytest.mark.parametrize("how", NOT_LEARNED)
def test_what_nobody_has_learned_is_raised(how: str) -> None:
    cluster, _, client = make({"t": 1})
    refuse_everything(cluster)
    producer = client.producer()
    for _ in range(20):
        NOT_LEARNED[how](producer.send("t", "a"))
    with pytest.raises(InvalidRecord) as caught:
        producer.close()
    assert caught.value.__notes__ == ["19 more batches of this producer failed"]


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_future_that_was_cancelled_tells_nobody(cancelled: bool) -> None:
    cluster, _, client = make({"t": 1})
    refuse_everything(cluster)
    producer = client.producer(linger_ms=1_000)
    future = producer.send("t", "a").future()
    told: list[bool] = []
    future.add_done_callback(lambda future: told.append(future.cancelled()))
    if cancelled:
        future.cancel()
        with pytest.raises(InvalidRecord):
            producer.close()
    else:
        producer.close()
    assert told == [cancelled]


def test_an_error_in_the_block_is_not_masked_and_what_can_be_is_delivered() -> None:
    cluster, _, client = make({"t": 1})
    with pytest.raises(ZeroDivisionError), client.producer(linger_ms=10_000) as producer:
        _ = producer.send("t", "kept").done() or 1 // 0
    assert everything(cluster) == [b"kept"]
    refuse_everything(cluster)
    with pytest.raises(ZeroDivisionError) as caught, client.producer(linger_ms=10_000) as producer:
        _ = producer.send("t", "refused").done() or 1 // 0
    assert "while closing the producer: InvalidRecord" in caught.value.__notes__[0]


def test_a_result_that_takes_too_long_times_out_and_goes_on() -> None:
    _, driver, client = make({"t": 1})
    producer = client.producer()
    producer.send("t", "warm")
    driver.filter = lambda to, message: isinstance(message, Produced)
    delivery = producer.send("t", "a")
    with pytest.raises(TimedOut, match="waited 2 s for an answer of broker 1, leader of t-0, to an append; it is still being tried"):
        delivery.result(timeout_s=2)
    with pytest.raises(TimedOut):
        producer.flush(timeout_s=1)
    driver.filter = None
    assert delivery.result().offset == 1
    producer.close()


def test_a_flush_takes_no_longer_than_it_may() -> None:
    """Under acks=0 it waits twice: to be rid of its records, and for connections to be rid of them."""
    cluster, driver, client = make({"t": 1})
    client.topics()
    cluster.move("t", 0, None)
    client.topics()
    producer = client.producer(acks=0)
    producer.send("t", "a")
    driver.unsent = {1: 10}

    def a_leader_comes_late() -> None:
        driver.clock.advance(1_500)
        cluster.move("t", 0, 1)
        driver.run()

    driver.events = [a_leader_comes_late]
    started = driver.now_ms()
    with pytest.raises(TimedOut, match="waited 3 s for records sent under acks=0 to leave this process"):
        producer.flush(timeout_s=3)
    assert driver.now_ms() - started == 3_000
    assert everything(cluster) == [b"a"]
    with pytest.raises(TimedOut):
        producer.flush(timeout_s=0)
    driver.unsent = {}
    producer.close(timeout_s=0)


def test_callbacks_run_outside_the_lock_and_futures_settle() -> None:
    _, driver, client = make({"t": 1})
    called: list[Any] = []
    free: list[bool] = []

    def other_thread_can_lock() -> None:
        def attempt() -> None:
            got = driver.lock.acquire(timeout=5)
            free.append(got)
            if got:
                driver.lock.release()

        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()

    with client.producer(linger_ms=1_000) as producer:
        delivery = producer.send("t", "a")
        delivery.add_done_callback(called.append)
        delivery.add_done_callback(lambda _: other_thread_can_lock())
        delivery.add_done_callback(lambda _: 1 / 0)
        future = delivery.future()
        assert not future.done()
        producer.flush()
        assert called == [delivery]
        assert free == [True]
        assert future.result(0).offset == 0
        delivery.add_done_callback(called.append)
        assert len(called) == 2


def test_a_callback_that_fails_is_logged_also_when_the_outcome_is_known_already(caplog: pytest.LogCaptureFixture) -> None:
    """Else it is a matter of chance whether `add_done_callback` raises what it does."""
    _, _, client = make({"t": 1})
    with client.producer() as producer:
        delivery = producer.send("t", "a")
        delivery.result()
        delivery.add_done_callback(lambda _: 1 / 0)
        assert [record.message for record in caplog.records] == ["a delivery callback failed"]

        def interrupt(_: Delivery) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            delivery.add_done_callback(interrupt)


def test_callbacks_that_ask_for_outcomes_do_not_stand_on_one_another() -> None:
    _, _, client = make({"t": 1_000})
    told: list[tuple[int | None, int]] = []

    def tell(delivery: Delivery) -> None:
        assert delivery.exception() is None
        told.append((delivery.result().partition, len(traceback.extract_stack())))

    with client.producer(linger_ms=1_000) as producer:
        for number in range(1_000):
            producer.send("t", "a", partition=number).add_done_callback(tell)
        producer.flush()
        assert sorted(partition for partition, _ in told) == list(range(1_000))
        depths = [depth for _, depth in told]
        assert max(depths) - min(depths) < 200, "whoever is last does not stand on a thousand others"


def test_within_a_callback_another_delivery_can_be_waited_for_and_its_future_is_settled() -> None:
    _, _, client = make({"t": 2})
    settled: list[bool] = []
    with client.producer(linger_ms=1_000) as producer:

        def send_another(_: Delivery) -> None:
            other = producer.send("t", "b", partition=1)
            future = other.future()
            other.result()
            settled.append(future.done())

        producer.send("t", "a", partition=0).add_done_callback(send_another)
        producer.flush()
    assert settled == [True]


def test_within_a_callback_those_of_another_client_are_called() -> None:
    (_, _, one), (_, _, other) = make({"t": 1}), make({"t": 1})
    called: list[str] = []
    with one.producer(linger_ms=1_000) as here, other.producer(linger_ms=1_000) as there:

        def pass_on(_: Delivery) -> None:
            there.send("t", "b").add_done_callback(lambda _: called.append("there"))
            there.flush()
            called.append("passed on")

        here.send("t", "a").add_done_callback(pass_on)
        here.flush()
    assert called == ["there", "passed on"]


def test_an_interrupt_in_a_callback_leaves_the_others_their_outcome() -> None:
    _, _, client = make({"t": 1})
    with client.producer(linger_ms=1_000) as producer:
        delivery = producer.send("t", "a")

        def interrupt(_: Delivery) -> None:
            raise KeyboardInterrupt

        delivery.add_done_callback(interrupt)
        future = delivery.future()
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        producer.flush()
        assert future.result(0).offset == 0


def test_a_dropped_producer_with_records_warns() -> None:
    _, driver, client = make({"t": 1})
    dropped = [client.producer(linger_ms=10_000)]
    for _ in range(3):
        dropped[0].send("t", "a")
    with pytest.warns(ResourceWarning, match=r"dropped with 3 records \(1 batches\) not flushed"):
        dropped.clear()
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = client.producer()
        done.send("t", "b")
        del done
        gc.collect()
    assert driver.core is not None


@pytest.mark.parametrize("seed", range(40))
def test_an_interrupt_between_messages_loses_no_accounting(seed: int) -> None:
    cluster, driver, client = make({"t": 2}, seed=seed, chaos=0.1, delivery_timeout_ms=1_000_000)
    rng = random.Random(seed)

    def interrupt() -> None:
        if rng.random() < 0.15:
            raise KeyboardInterrupt

    def keep_trying(call: Any) -> Any:
        while True:
            try:
                return call()
            except KeyboardInterrupt:
                continue

    producer = keep_trying(lambda: client.producer(linger_ms=rng.choice((0, 20))))
    keep_trying(lambda: client.partitions_for("t"))
    driver.interrupt = interrupt
    returned = []
    interrupted = 0
    for n in range(60):
        try:
            returned.append((b"%d" % n, producer.send("t", b"%d" % n, partition=n % 2)))
        except KeyboardInterrupt:
            interrupted += 1
    keep_trying(producer.flush)
    driver.interrupt = None
    producer.close()
    assert producer._writer.buffered == 0
    stored = everything(cluster)
    assert len(stored) == len(set(stored))
    assert {value for value, _ in returned} <= set(stored)
    assert len(stored) <= len(returned) + interrupted
    assert not driver.core._requests
    assert not driver.core._ops


def test_after_a_crash_of_the_core_everything_has_an_outcome_and_work_goes_on() -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer()
    producer.send("t", "a").result()
    driver.filter = lambda to, message: isinstance(message, (Produce, Produced))
    waiting = [producer.send("t", f"lost {n}") for n in range(8)]
    with driver.lock:
        driver.core.crash(KeyboardInterrupt())
    assert all(isinstance(d.exception(), Unavailable) for d in waiting)
    assert producer._writer.buffered == 0
    driver.filter = None
    assert producer.send("t", "b").result().offset == 1
    assert cluster.partition("t").log[-1].producer_epoch == 1
    assert client.append("t", 0, ["c"]).base_offset == 2
    producer.close()


def test_after_a_fork_the_child_is_another_producer() -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer(linger_ms=1_000)
    client.append("t", 0, ["a"])
    before = producer._writer.producer_id
    pending = producer.send("t", "stays with the parent")
    driver.core.after_fork()
    assert producer._writer.producer_id != before
    assert isinstance(pending.exception(), Unavailable)
    assert producer.send("t", "child").result().offset == 1
    assert client.append("t", 0, ["b"]).base_offset == 2
    assert len({batch.producer_id for batch in cluster.partition("t").log}) == 3
    assert not driver.core._requests
    producer.close()


def test_after_a_fork_the_child_waits_for_nothing_that_the_parent_has_sent() -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    with client.producer(acks=0) as producer:
        producer.send("t", "a")
        driver.unsent = {1: 10}
        driver.core.after_fork()
        producer.flush(timeout_s=0)


def test_two_threads_may_send() -> None:
    cluster, _, client = make({"t": 2})
    producer = client.producer(linger_ms=1, batch_bytes=2_000)
    client.partitions_for("t")
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for n in range(2_000):
                producer.send("t", f"{name}{n}", partition=0 if name == "a" else n % 2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.close()
    assert not failures
    assert sorted(everything(cluster)) == sorted(f"{name}{n}".encode() for name in "ab" for n in range(2_000))
    mine = [v for v in cluster.partition("t", 0).values() if v.startswith(b"a")]
    assert mine == [b"a%d" % n for n in range(2_000)]
    assert producer._writer.buffered == 0


def test_partitions_that_appear_are_used() -> None:
    cluster, _, client = make({"t": 1})
    with client.producer() as producer:
        assert {producer.send("t", "v", key=f"{n}").result().partition for n in range(20)} == {0}
        cluster.delete("t")
        cluster.create("t", 3)
        client.topics()
        assert {producer.send("t", "v", key=f"{n}").result().partition for n in range(20)} == {0, 1, 2}
        assert {producer.send("t", "v").result().partition for _ in range(6)} == {0, 1, 2}


def interrupt_after(_: Any) -> None:
    raise KeyboardInterrupt


def close_driver(driver: Any) -> None:
    with driver.lock:
        driver.closed = True
        driver.core.crash(UsageError("closed"))


@pytest.mark.parametrize("crashed", [True, False])
def test_a_client_closed_first_is_no_silent_loss(crashed: bool) -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer(linger_ms=60_000)
    told: list[Any] = []
    for n in range(3):
        producer.send("t", str(n)).add_done_callback(told.append)
    driver.closed = True
    if crashed:
        close_driver(driver)
    with pytest.raises(UsageError, match="this Client is closed"):
        producer.send("t", "late")
    with pytest.raises(UsageError, match="this Client is closed"):
        producer.send_many("t", ["late"])
    with pytest.raises(Unavailable, match=r"the client was closed before this Producer: 3 records were not sent$"):
        producer.close()
    producer.close()
    with pytest.raises(UsageError, match="this Producer is closed"):
        producer.send("t", "later")
    assert everything(cluster) == []


def test_a_client_closed_first_hides_no_other_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "_FAILED_MAX", 2)
    cluster, driver, client = make({"t": 1})
    producer = client.producer()
    override = cluster.override
    refuse_everything(cluster)
    for n in range(5):
        producer.send("t", str(n))
    cluster.override = override
    driver.filter = lambda to, message: isinstance(message, Produce)
    producer.send("t", "late")
    close_driver(driver)
    with pytest.raises(Unavailable, match="the client was closed before this Producer: 1 records were sent") as caught:
        producer.close()
    assert caught.value.__notes__ == ["5 more batches of this producer failed"]
    producer.flush()


def test_leaving_the_block_after_the_client_says_what_is_unknown() -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    driver.filter = lambda to, message: isinstance(message, Produce)
    producer = client.producer(linger_ms=60_000)
    producer.send_many("t", ["a", "b"])
    producer._send_open()
    producer.send("t", "c")
    close_driver(driver)
    with pytest.raises(Unavailable, match="1 records were not sent, 2 records were sent, but whether they were stored is unknown"):
        producer.__exit__(None, None, None)
    _, driver, client = make({"t": 1})
    with client.producer() as producer:
        producer.send("t", "a").result()
        close_driver(driver)


def test_an_error_in_the_block_is_not_held_up_for_ever() -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    driver.filter = lambda to, message: isinstance(message, Produce)
    started = driver.now_ms()
    with pytest.raises(ZeroDivisionError) as caught, client.producer(max_block_ms=3_000) as producer:
        _ = producer.send("t", "stuck").done() or 1 // 0
    assert driver.now_ms() - started == 3_000
    assert "while closing the producer: TimedOut: waited 3 s" in caught.value.__notes__[0]
    producer._writer.failed.clear()


def test_sys_exit_in_the_block_loses_nothing() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["warm"])
    cluster.paused = {1}
    driver.events = [driver.resume]
    with pytest.raises(SystemExit), client.producer(linger_ms=60_000) as producer:
        sys.exit(producer.send("t", "a").done())
    assert everything(cluster) == [b"warm", b"a"]


@pytest.mark.parametrize("forked", [False, True])
def test_sys_exit_in_the_block_does_not_say_that_all_went_well(forked: bool) -> None:
    """Nobody sees the notes of a SystemExit. A child of a fork may go on with the client, and has records of its own."""
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["warm"])
    refuse_everything(cluster)
    producer = client.producer(linger_ms=60_000)
    producer._pid += forked
    with pytest.raises(InvalidRecord) as caught, producer:
        sys.exit(producer.send("t", "a").done())
    assert isinstance(caught.value.__context__, SystemExit)


def test_in_a_child_that_has_no_client_sys_exit_is_none_of_the_records_of_its_parent() -> None:
    _, driver, client = make({"t": 1})
    producer = client.producer(linger_ms=60_000)
    producer.send("t", "a")
    producer._pid += 1
    close_driver(driver)
    with pytest.raises(SystemExit) as caught, producer:
        sys.exit()
    assert "1 records were not sent" in caught.value.__notes__[0]


def pour(client: Any) -> Iterator[int]:
    with client.producer(linger_ms=60_000) as producer:
        for n in range(1_000):
            producer.send("t", str(n))
            yield n


def test_a_generator_that_is_closed_in_the_block_loses_nothing() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["warm"])
    cluster.paused = {1}
    driver.events = [driver.resume]
    numbers = pour(client)
    assert [next(numbers), next(numbers)] == [0, 1]
    numbers.close()
    assert everything(cluster) == [b"warm", b"0", b"1"]


def test_nor_does_it_say_that_all_went_well() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["warm"])
    refuse_everything(cluster)
    numbers = pour(client)
    next(numbers)
    with pytest.raises(InvalidRecord):
        numbers.close()


def test_an_interrupt_in_the_block_is_not_held_up_at_all() -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    with pytest.raises(KeyboardInterrupt) as caught, client.producer(linger_ms=60_000) as producer:
        interrupt_after(producer.send("t", "goes at once"))
    assert everything(cluster) == [b"goes at once"]
    assert not hasattr(caught.value, "__notes__")
    driver.filter = lambda to, message: isinstance(message, Produce)
    started = driver.now_ms()
    with pytest.raises(KeyboardInterrupt) as caught, client.producer(linger_ms=60_000) as producer:
        interrupt_after(producer.send("t", "stuck"))
    assert driver.now_ms() == started
    assert "1 records had no outcome yet and were not waited for" in caught.value.__notes__[0]
    with pytest.raises(UsageError, match="this Producer is closed"):
        producer.send("t", "later")


def test_a_flush_that_finds_a_topic_gone_goes_on_with_the_others() -> None:
    """The queue is forgotten while all of them are gone through, as somebody else has found out what became of the topic."""
    cluster, driver, client = make({"t": 1, "u": 1})
    producer = client.producer(linger_ms=60_000, batch_bytes=64)
    producer.send("t", f"{0:040}")
    producer.send("u", "warm")
    producer.flush()  # from now on five may be under way
    cluster.paused = {1}
    sent = [producer.send("t", f"{n:040}") for n in range(1, 8)]  # one sealed and one open behind them
    held, driver.held = driver.held, []
    cluster.paused = set()
    client.topics()
    entries = [entry for item in held if isinstance(item[4], Produce) for entry in item[4].entries]
    stored = cluster._produced(1, -1, entries[0])
    cluster.delete("t")
    client.topics()
    driver.filter = lambda to, message: isinstance(message, Metadata)
    core = driver.core
    core.receive(1, Produced([stored]), driver.now_ms())  # there is room: the sealed one is looked up, nobody knows the topic
    asked = next(message for _, message in core.outbox.messages if isinstance(message, Metadata))
    core.outbox.messages.clear()
    core.receive(1, Produced([cluster._produced(1, -1, entries[1])]), driver.now_ms())
    core.receive(2, cluster.view(asked.request), driver.now_ms())
    driver.filter = None
    driver.clock.advance(500)
    other = producer.send("u", "other")
    with pytest.raises(ReplogError):
        producer.flush(5)
    assert other.done()
    assert all(one.done() for one in sent)
    assert cluster.partition("u").values()[-1] == b"other"


def test_what_is_unsettled_can_be_counted_while_others_settle_it() -> None:
    """As when a producer is dropped on one thread and its client is driven on another."""
    _, _, client = make({"t": 2})
    producer = client.producer(linger_ms=60_000)
    for partition in (0, 1):
        producer.send("t", "x", partition=partition)
    writer = producer._writer
    seen = writer.unsettled()
    assert next(seen) is not None
    writer.queues["t", 1].seal()
    writer.forget(writer.queues["t", 0])
    assert len(list(seen)) == 1
    seen.close()
    with pytest.warns(ResourceWarning, match=r"dropped with 1 records"):
        del producer


def test_what_is_unsettled_counts_once_while_it_is_sealed_and_no_more_while_it_leaves() -> None:
    _, _, client = make({"t": 1})
    producer = client.producer(linger_ms=60_000)
    delivery = producer.send("t", "x")
    queue = producer._writer.queues["t", 0]
    queue.batches.append(delivery._batch)  # half of `seal`
    assert list(producer._writer.unsettled()) == [delivery._batch]
    delivery._batch.done = True  # half of `settle`
    assert list(producer._writer.unsettled()) == []
    client.close()


def test_failures_may_be_asked_for_while_they_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes one off the list, on whatever thread, holds the lock that those hold who go through it."""
    cluster, driver, client = make({"t": 1})
    refuse_everything(cluster)
    producer = client.producer()
    futures = [producer.send("t", "x").future() for _ in range(2)]
    told, held = producer._writer.told, []
    monkeypatch.setattr(producer._writer, "told", lambda batch: (held.append(driver.lock._is_owned()), told(batch)))
    for future in futures:
        assert isinstance(future.exception(0), InvalidRecord)
    assert held == [True, True]
    producer.close()
