"""Appending: what is repeated, what is not, and that nothing is stored twice or out of order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.fake import CLIENT, make

from replog.config import TopicConfig
from replog.errors import (
    Code,
    InvalidRecord,
    LogDirectoryFull,
    MessageTooLarge,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    PolicyViolation,
    TimedOut,
    Unavailable,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UsageError,
)
from replog.messages import Disconnected, Produce, Produced, ProducedEntry
from replog.records import RecordBatch


def refuse(cluster: Any, *codes: int, store: bool = False) -> None:
    """The next appends are answered with these codes, one each; with `store` they are appended all the same."""
    left = list(codes)

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce) or not left:
            return None
        code = left.pop(0)
        if store:
            for entry in message.entries:
                cluster._produced(broker, message.acks, entry)
        return [Produced([ProducedEntry(entry.request, code) for entry in message.entries])]

    cluster.override = override


@pytest.mark.parametrize(
    "code",
    [
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.NOT_ENOUGH_REPLICAS,
        Code.CORRUPT_MESSAGE,
        Code.REQUEST_TIMED_OUT,
        Code.STORAGE_ERROR,
        Code.LOG_DIRECTORY_FULL,
        Code.LEADER_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.QUOTA_EXCEEDED,
        Code.OUT_OF_ORDER_SEQUENCE,
    ],
)
def test_a_retriable_refusal_is_tried_again(code: int) -> None:
    cluster, _, client = make({"t": 1})
    refuse(cluster, code, code)
    assert client.append("t", 0, ["a"]).base_offset == 0
    assert cluster.partition("t").values() == [b"a"]
    assert cluster.counts["Produce"] == 3


@pytest.mark.parametrize("code", [Code.REQUEST_TIMED_OUT, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.NOT_LEADER_OR_FOLLOWER])
def test_p103_stored_but_not_acknowledged_is_repeated_under_the_same_sequence(code: int) -> None:
    cluster, _, client = make({"t": 1})
    refuse(cluster, code, store=True)
    assert client.append("t", 0, ["a"]) == ("t", 0, 0, 0)
    assert cluster.partition("t").values() == [b"a"]
    assert cluster.counts["Produce"] == 2


def test_p100_a_lost_answer_leaves_one_copy() -> None:
    cluster, driver, client = make({"t": 1})
    lost = []

    def drop(to: Any, message: Any) -> bool:
        if to == CLIENT and isinstance(message, Produced) and not lost:
            lost.append(message)
            return True
        return False

    driver.filter = drop
    assert client.append("t", 0, ["a"], timeout_s=100).base_offset == 0
    assert lost
    assert cluster.counts["Produce"] == 2
    assert cluster.partition("t").values() == [b"a"]


def test_p101_a_lost_answer_and_another_leader_leave_one_copy() -> None:
    cluster, driver, client = make({"t": 1})

    def move(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Produce) and broker == 1:
            for entry in message.entries:
                cluster._produced(broker, message.acks, entry)
            cluster.move("t", 0, 2)
            cluster.down.add(1)
            driver.core.receive(1, Disconnected(1), driver.now_ms())
            return []
        return None

    cluster.override = move
    assert client.append("t", 0, ["a"]).base_offset == 0
    assert cluster.partition("t").values() == [b"a"]
    assert client.append("t", 0, ["b"]).base_offset == 1


def test_a_hint_in_the_refusal_is_followed_without_metadata() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["a"])
    stale = cluster.view()
    cluster.move("t", 0, 3)
    cluster.late_views = dict.fromkeys((1, 2, 3), stale)
    assert client.append("t", 0, ["b"]).base_offset == 1


def test_without_sequences_a_batch_that_was_appended_is_not_repeated() -> None:
    cluster, _, client = make({"t": 1})
    refuse(cluster, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, store=True)
    with pytest.raises(NotEnoughReplicasAfterAppend), client.producer(idempotent=False) as producer:
        producer.send("t", "a")
    assert cluster.partition("t").values() == [b"a"]


def test_a_batch_of_too_many_records_is_refused_with_their_number_and_the_limit() -> None:
    cluster, _, client = make({"t": 1})
    refuse(cluster, Code.INVALID_RECORD, Code.POLICY_VIOLATION)
    said = "t-0: its leader refused a batch of 3 records; a broker takes at most batch_records_max, by default 1000000"
    with pytest.raises(InvalidRecord, match=f"^{said}$"):
        client.append("t", 0, ["a", "b", "c"])
    with pytest.raises(PolicyViolation) as caught:
        client.append("t", 0, ["a", "b", "c"])
    assert "3 records" not in str(caught.value), "that says nothing of their number"


def test_p107_without_sequences_one_batch_at_a_time_keeps_the_order() -> None:
    cluster, driver, client = make({"t": 1})
    refuse(cluster, Code.NOT_ENOUGH_REPLICAS)
    with client.producer(idempotent=False) as producer:
        for n in range(20):
            producer.send("t", str(n))
    assert cluster.partition("t").values() == [b"%d" % n for n in range(20)]
    assert driver.core.deadline_ms() is None or driver.core.deadline_ms() > driver.now_ms()


def test_p107_with_sequences_a_later_batch_never_overtakes_a_refused_one() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["warm"])
    refuse(cluster, Code.NOT_ENOUGH_REPLICAS, Code.NOT_ENOUGH_REPLICAS)
    driver.filter = lambda to, message: False
    with client.producer() as producer, driver.lock:
        for n in range(12):
            producer.send("t", str(n))
    assert cluster.partition("t").values() == [b"warm"] + [b"%d" % n for n in range(12)]


def test_p107_without_sequences_only_one_batch_is_under_way() -> None:
    _, driver, client = make({"t": 1})
    client.topics()
    sent: list[Any] = []

    def hold(to: Any, message: Any) -> bool:
        if isinstance(message, Produce):
            sent.extend(message.entries)
            return True
        return False

    producer = client.producer(idempotent=False, batch_bytes=64)
    driver.filter = hold
    for n in range(10):
        producer.send("t", f"{n:050}")
    assert len(sent) == 1
    driver.filter = None
    producer.close()


def test_a_stale_leader_that_misses_records_does_not_make_the_client_start_again() -> None:
    cluster, _, client = make({"t": 1}, request_timeout_ms=500)
    client.append("t", 0, ["a"])
    answers: list[Any] = ["lost", Code.OUT_OF_ORDER_SEQUENCE, Code.OUT_OF_ORDER_SEQUENCE]

    def stale(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce) or not answers:
            return None
        said = answers.pop(0)
        if said == "lost":
            cluster._produced(broker, message.acks, message.entries[0])
            return []
        return [Produced([ProducedEntry(message.entries[0].request, said)])]

    cluster.override = stale
    assert client.append("t", 0, ["b"]).base_offset == 1
    assert not answers
    assert cluster.partition("t").values() == [b"a", b"b"]
    assert cluster.partition("t").log[-1].producer_epoch == 0


def test_acks_0_is_sent_once_and_has_no_offsets() -> None:
    cluster, _, client = make({"t": 1})
    assert client.append("t", 0, ["a", "b"], acks=0) == ("t", 0, None, None)
    assert cluster.partition("t").values() == [b"a", b"b"]
    assert cluster.partition("t").log[0].producer_id == -1
    with client.producer(acks=0) as producer:
        delivery = producer.send("t", "c")
        assert delivery.result().offset is None
        assert repr(delivery) == "Delivery(t-0, sent)"


def test_acks_0_waits_for_the_broker_that_it_went_to_and_says_what_went_wrong_first() -> None:
    cluster, driver, client = make({"t": 1, "u": 2})
    cluster.move("t", 0, 1)
    cluster.move("u", 1, 2)
    client.topics()
    driver.unsent = {1: 500_000}
    with pytest.raises(TimedOut):
        client.append("t", 0, ["stuck"], acks=0, timeout_s=3)
    started = driver.now_ms()
    assert client.append("u", 1, ["on its way"], acks=0, timeout_s=3).base_offset is None
    with pytest.raises(UnknownTopicOrPartition):
        client.append("u", 7, ["nowhere"], acks=0, timeout_s=3)
    assert driver.now_ms() - started < 3_000
    assert cluster.partition("u", 1).values() == [b"on its way"]


def test_acks_0_takes_nothing_for_sent_that_is_still_here_when_time_is_up() -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    driver.unsent = {1: 10}
    started = driver.now_ms()
    with pytest.raises(TimedOut, match="waited 3 s for an append under acks=0 to leave this process; it is still being tried"):
        client.append("t", 0, ["a"], acks=0, timeout_s=3)
    cluster.move("t", 0, None)
    client.topics()

    def a_leader_comes_late() -> None:
        driver.clock.advance(1_500)
        cluster.move("t", 0, 1)
        driver.run()

    driver.events = [a_leader_comes_late]
    with pytest.raises(TimedOut):
        client.append("t", 0, ["b"], acks=0, timeout_s=3)
    assert driver.now_ms() - started == 6_000
    driver.unsent = {}
    assert client.append("t", 0, ["c"], acks=0).base_offset is None
    assert cluster.partition("t").values() == [b"a", b"b", b"c"]


def test_acks_0_says_that_it_was_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, driver, client = make({"t": 1})
    client.topics()
    driver.unsent = {1: 10}
    with pytest.raises(TimedOut):
        client.append("t", 0, ["a"], acks=0, timeout_s=3)
    cluster.move("t", 0, None)
    client.topics()

    def time_is_up_between_a_look_at_the_timers_and_one_at_the_clock(done: Callable[[], bool], timeout_s: float) -> bool:
        driver.clock.advance(int(timeout_s * 1000))
        return done()

    monkeypatch.setattr(driver, "wait", time_is_up_between_a_look_at_the_timers_and_one_at_the_clock)
    with pytest.raises(TimedOut, match=r"waited 3 s for t-0 to have a leader.*; it was never sent$"):
        client.append("t", 0, ["b"], acks=0, timeout_s=3)
    monkeypatch.undo()
    cluster.move("t", 0, 1)
    client.topics()
    assert cluster.partition("t").values() == [b"a"]


def test_not_enough_replicas_to_the_end_is_a_definite_refusal() -> None:
    cluster, driver, client = make({"t": 1})
    cluster.partition("t").enough_replicas = False
    with pytest.raises(NotEnoughReplicas, match="t-0"):
        client.append("t", 0, ["a"], timeout_s=5)
    cluster.partition("t").enough_replicas = True
    assert client.append("t", 0, ["b"]).base_offset == 0
    driver.pass_time(60_000)
    assert cluster.partition("t").values() == [b"b"]


def test_a_full_disk_to_the_end_is_a_definite_refusal() -> None:
    cluster, driver, client = make({"t": 1})
    refuse(cluster, *[Code.LOG_DIRECTORY_FULL] * 1_000)
    with pytest.raises(LogDirectoryFull, match=r"^LogDirectoryFull, waited 5 s .*t-0"):
        client.append("t", 0, ["a"], timeout_s=5)
    cluster.override = None
    assert client.append("t", 0, ["b"]).base_offset == 0
    driver.pass_time(60_000)
    assert cluster.partition("t").values() == [b"b"]


def test_a_full_disk_after_a_lost_answer_settles_nothing() -> None:
    """The first copy may be stored: the refusal of the second says nothing about it."""
    cluster, _, client = make({"t": 1})
    refuse(cluster, Code.REQUEST_TIMED_OUT, *[Code.LOG_DIRECTORY_FULL] * 1_000)
    with pytest.raises(TimedOut, match="the last answer was LogDirectoryFull; whether it was stored is unknown"):
        client.append("t", 0, ["a"], timeout_s=5)


def test_giving_up_an_unknown_outcome_raises_the_epoch_and_starts_at_sequence_0() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["first"])
    driver.filter = lambda to, message: isinstance(message, Produced)
    with pytest.raises(TimedOut, match="waited 7 s for an answer of broker 1, leader of t-0, to an append"):
        client.append("t", 0, ["lost?"], timeout_s=7)
    driver.filter = None
    assert client.append("t", 0, ["next"]).base_offset == 2
    last = cluster.partition("t").log[-1]
    assert (last.producer_epoch, last.base_sequence) == (1, 0)
    assert cluster.partition("t").values() == [b"first", b"lost?", b"next"]


def test_what_was_sent_behind_a_lost_batch_fails_too_rather_than_being_stored_twice() -> None:
    cluster, driver, client = make({"t": 1}, delivery_timeout_ms=10_000, request_timeout_ms=500)
    producer = client.producer(batch_bytes=64)
    producer.send("t", "warm").result()

    def is_lost(to: Any, message: Any) -> bool:
        batches = [RecordBatch(entry.body) for entry in message.entries] if isinstance(message, Produce) else []
        return (0, 1) in [(batch.producer_epoch, batch.base_sequence) for batch in batches]

    driver.filter = is_lost
    early = producer.send("t", "lost")
    driver.clock.advance(1_000)
    cluster.paused = {1}
    behind = producer.send("t", "behind")
    later = [producer.send("t", f"later {n:030}") for n in range(10)]
    driver.held.clear()
    cluster.paused.clear()
    assert isinstance(early.exception(60), TimedOut)
    assert "an append to t-0: an earlier one was given up" in str(behind.exception(60))
    assert isinstance(behind.exception(), Unavailable)
    outcome = [delivery.exception(60) for delivery in later]
    stored = cluster.partition("t").values()
    assert stored == [b"warm"] + [b"later %030d" % n for n, error in enumerate(outcome) if error is None]
    assert [error is None for error in outcome] == [False] * 3 + [True] * 7
    producer._writer.failed.clear()
    producer.close()


def test_a_batch_behind_one_given_up_is_stored_if_that_one_was() -> None:
    cluster, driver, client = make({"t": 1}, delivery_timeout_ms=10_000, request_timeout_ms=500)
    producer = client.producer()
    producer.send("t", "warm").result()
    driver.filter = lambda to, message: isinstance(message, Produced)
    lost = producer.send("t", "stored, answer lost")
    driver.pass_time(5_000)
    behind = producer.send("t", "behind")
    driver.pass_time(5_500)
    assert isinstance(lost.exception(), TimedOut)
    driver.filter = None
    assert behind.result(60).offset == 2
    assert cluster.partition("t").values() == [b"warm", b"stored, answer lost", b"behind"]
    assert producer.send("t", "fresh").result().offset == 3
    assert cluster.partition("t").log[-1].producer_epoch == 1
    producer._writer.failed.clear()
    producer.close()


def test_a_refused_batch_leaves_no_gap_for_those_behind_it() -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer(linger_ms=50)
    client.append("t", 0, ["warm"])
    producer.send("t", "warm too").result()

    def poison(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Produce):
            answers = []
            for entry in message.entries:
                bad = b"bad" in bytes(RecordBatch(entry.body).payload)
                answers.append(ProducedEntry(entry.request, Code.INVALID_RECORD) if bad else cluster._produced(broker, -1, entry))
            return [Produced(answers)]
        return None

    cluster.override = poison
    driver.chaos = 0
    with driver.lock:
        deliveries = []
        queue = producer._writer.queue("t", 0)
        for text in ("good 1", "bad", "good 2", "good 3"):
            deliveries.append(producer.send("t", text))
            queue.seal()
        driver.core.kick(queue, driver.now_ms())
    errors = [delivery.exception() for delivery in deliveries]
    assert [error is None for error in errors] == [True, False, True, True]
    assert cluster.partition("t").values() == [b"warm", b"warm too", b"good 1", b"good 2", b"good 3"]
    assert cluster.partition("t").log[-1].producer_epoch == 1
    producer._writer.failed.clear()
    producer.close()


def test_acks_1_goes_on_after_the_new_leader_lost_acknowledged_records() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["a"], acks=1)
    client.append("t", 0, ["b"], acks=1)
    cluster.partition("t").log.pop()
    cluster.move("t", 0, 2)
    client.topics()
    assert client.append("t", 0, ["c"], acks=1).base_offset == 1
    assert cluster.partition("t").values() == [b"a", b"c"]


def test_a_topic_deleted_meanwhile_fails_what_was_sent_and_spares_the_rest() -> None:
    cluster, driver, client = make({"t": 1})
    producer = client.producer()
    driver.filter = lambda to, message: isinstance(message, Produced)
    sent = producer.send("t", "to the old topic")
    cluster.delete("t")
    cluster.create("t")
    driver.filter = None
    driver.pass_time(40_000)
    assert isinstance(sent.exception(), UnknownTopicId)
    assert producer.send("t", "to the new one").result().offset == 0
    producer._writer.failed.clear()
    producer.close()


def test_no_leader_is_waited_for() -> None:
    cluster, driver, client = make({"t": 1})
    cluster.move("t", 0, None)
    driver.events = [*[lambda: None] * 5, lambda: cluster.move("t", 0, 2)]
    assert client.append("t", 0, ["a"]).base_offset == 0
    cluster.move("t", 0, None)
    with pytest.raises(TimedOut, match="waited 3 s for t-0 to have a leader"):
        client.append("t", 0, ["b"], timeout_s=3)


def test_one_produce_per_leader_carries_many_partitions() -> None:
    cluster, driver, client = make({"t": 6})
    producer = client.producer(linger_ms=10)
    for n in range(60):
        producer.send("t", str(n), partition=n % 6)
    before = dict(cluster.counts)
    driver.pass_time(20)
    assert cluster.counts["Produce"] - before.get("Produce", 0) == 3
    producer.close()


def test_unknown_topics_and_partitions_name_what_there_is() -> None:
    cluster, _, client = make({"orders": 2, "users": 1})
    with pytest.raises(UnknownTopicOrPartition, match=r"unknown topic 'order'; known topics are orders, users"):
        client.append("order", 0, ["a"])
    with pytest.raises(UnknownTopicOrPartition, match=r"topic 'orders' has no partition 2; it has 0, 1"):
        client.append("orders", 2, ["a"])
    assert "Produce" not in cluster.counts


def test_too_large_is_refused_before_sending_and_names_size_and_limit() -> None:
    cluster, _, client = make({"t": 1}, max_record_bytes=1_000)
    with pytest.raises(MessageTooLarge, match="1001 bytes is too large; max_record_bytes is 1000"):
        client.append("t", 0, [b"x" * 1001])
    cluster.create("small", 1, max_batch_bytes=500)
    with pytest.raises(MessageTooLarge, match=r"too large; the topic allows 500"):
        client.append("small", 0, [random.Random(7).randbytes(700)])
    assert "Produce" not in cluster.counts
    assert client.append("small", 0, ["fits"]).base_offset == 0


@pytest.mark.parametrize("large", [1, 2, 4])
def test_what_is_behind_a_batch_that_is_too_large_goes_at_once(large: int) -> None:
    cluster, driver, client = make({})
    cluster.create("small", 1, max_batch_bytes=500)
    client.topics()
    before = driver.now_ms()
    producer = client.producer(compression=None)
    sent = producer.send_many("small", [*[random.Random(7).randbytes(700)] * large, "fits"])
    assert cluster.partition("small").values() == [b"fits"]
    assert driver.now_ms() == before
    assert [type(delivery.exception()) for delivery in sent] == [MessageTooLarge] * large + [type(None)]
    producer.close()


@pytest.mark.parametrize("stored", [True, False])
def test_without_sequences_what_may_be_stored_is_not_refused_when_the_limit_is_lowered(stored: bool) -> None:
    cluster, driver, client = make({"t": 1})
    lost: list[Any] = []

    def lower(to: Any, message: Any) -> bool:
        if lost or not isinstance(message, Produced if stored else Produce):
            return False
        lost.append(message)
        cluster.topics["t"] = (cluster.topics["t"][0], TopicConfig(max_batch_bytes=256))
        cluster.move("t", 0, 2)
        return True

    def too_large(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce) or not lost:
            return None
        return [Produced([ProducedEntry(message.entries[0].request, Code.MESSAGE_TOO_LARGE)])]

    driver.filter, cluster.override = lower, too_large
    delivery = client.producer(idempotent=False, compression=None).send("t", "x" * 1000)
    with pytest.raises(Unavailable, match="MessageTooLarge was the answer to a repetition; whether it was stored is unknown"):
        delivery.result(100)
    assert len(cluster.partition("t").log) == stored
    fresh = client.producer(idempotent=False, compression=None).send("t", "x" * 1000)
    with pytest.raises(MessageTooLarge, match="the topic allows 256"):
        fresh.result(100)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda c: c.append("t", 0, ["a"], acks=7), r'acks is 7; allowed are 0, 1, "all"'),
        (lambda c: c.append("t", 0, ["a"], acks=True), r"acks is True"),
        (lambda c: c.append("t", 0, ["a"], acks="al"), r"acks is 'al'"),
        (lambda c: c.append("t/x", 0, ["a"]), r"'t/x' has '/'"),
        (lambda c: c.append("t", -1, ["a"]), r"partition -1 is out of range"),
        (lambda c: c.append("t", 0, "abc"), r"not one str: put it into a list"),
        (lambda c: c.append("t", 0, []), r"records is empty"),
        (lambda c: c.append("t", 0, [3]), r"a value is bytes, str or None, not int"),
        (lambda c: c.append("t", 0, ["a"], timeout_s=-1), r"timeout_s is -1"),
        (lambda c: c.producer(compression="gzip"), r"compression is 'gzip'; allowed are 'lz4', None"),
        (lambda c: c.producer(partitioner="murmur"), r"did you mean 'murmur2'\?"),
        (lambda c: c.producer(batch_bytes=1), r"batch_bytes is 1; allowed are 64"),
        (lambda c: c.create_topic("x", partitions=0), r"partitions is 0; allowed are 1"),
        (lambda c: c.create_topic("x", min_irs=2), r"did you mean 'min_isr'\?"),
        (lambda c: c.create_topic("x", partitions=3, assignment={0: [1]}), r"partitions is 3, but the assignment names 1"),
        (lambda c: c.fetch("t", 0, -1), r"offset is -1; allowed are 0"),
        (lambda c: c.read("t", start="begin"), r"start is 'begin'"),
        (lambda c: c.read("t", partitions=3), r"partitions is a list"),
        (lambda c: c.offset("t", 0, 5), r"at is 5"),
        (lambda c: c.consumer(), r"at least one topic"),
        (lambda c: c.consumer("t", start=-4), r"start is -4"),
    ],
)
def test_wrong_calls_name_the_value_and_send_nothing(call: Any, match: str) -> None:
    cluster, _, client = make({"t": 1})
    with pytest.raises(UsageError, match=match):
        call(client)
    assert cluster.counts == {}


def test_a_closed_client_refuses() -> None:
    _, _, client = make({"t": 1})
    client.close()
    client.close()
    for call in (lambda: client.append("t", 0, ["a"]), client.topics, client.producer, lambda: client.consumer("t")):
        with pytest.raises(UsageError, match="this Client is closed"):
            call()
