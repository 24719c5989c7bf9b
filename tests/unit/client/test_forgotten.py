"""Leaders that do not know a producer, or know less than it was told: no batch overtakes another, and nothing is stored twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.errors import Code, InvalidRecord, MessageTooLarge, ReplogError, Unavailable, UnknownTopicId
from replog.messages import Disconnected, Produce, Produced, ProducedEntry
from replog.records import RecordBatch, decode_records


def line(n: int) -> bytes:
    """A value that fills a batch of 64 bytes."""
    return b"%040d" % n


def lose_first(driver: FakeDriver) -> None:
    """The next batch does not arrive, whatever was sent with it does."""
    lost: list[Any] = []

    def drop(to: Any, message: Any) -> bool:
        if isinstance(message, Produce) and not lost:
            lost.append(message.entries.pop(0))
            return not message.entries
        return False

    driver.filter = drop


def refuse_first(cluster: FakeCluster, code: int) -> None:
    """The next batch that arrives is refused, whatever is behind it."""
    refused: list[Any] = []

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce) or refused:
            return None
        first, *others = message.entries
        refused.append(first)
        return [Produced([ProducedEntry(first.request, code), *(cluster._produced(broker, message.acks, entry) for entry in others)])]

    cluster.override = override


def at_once(client: Any, producer: Any, values: list[bytes]) -> list[Any]:
    """Batches of one value each, sealed before any of them leaves."""
    queue = producer._writer.queue("t", 0)
    sent = []
    driver = client._driver
    for value in values:
        batch = queue.begin(driver.now_ms(), driver.wall_ms(), 120_000)
        batch.add(value)
        queue.seal()
        sent.append(batch)
    driver.core.kick(queue, driver.now_ms())
    driver.run()
    return sent


def wait(driver: FakeDriver, batches: list[Any]) -> list[BaseException | None]:
    """The outcomes."""
    driver.wait(lambda: all(batch.done for batch in batches), 300)
    return [batch.error for batch in batches]


Fault = Callable[[FakeCluster, FakeDriver], None]
FAULTS: dict[str, Fault] = {
    "lost": lambda cluster, driver: lose_first(driver),
    "refused": lambda cluster, driver: refuse_first(cluster, Code.QUOTA_EXCEEDED),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_batch_at_a_log_that_has_forgotten_producers_is_stored_first(fault: str) -> None:
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    client.topics()
    cluster.partition("t").forgetful = True
    FAULTS[fault](cluster, driver)
    with client.producer(batch_bytes=64) as producer:
        sent = at_once(client, producer, [line(n) for n in range(7)])
        assert wait(driver, sent) == [None] * 7
    assert cluster.partition("t").values() == [line(n) for n in range(7)]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stored", [0, 2])
def test_at_a_new_leader_that_does_not_know_the_producer_the_oldest_goes_first(fault: str, stored: int) -> None:
    """acks=1: what only the old leader had is gone, some of it not acknowledged yet. The new one would take any batch for the first."""
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    partition = cluster.partition("t")
    producer = client.producer(acks=1, batch_bytes=64)
    producer.send("t", "acknowledged").result()
    cluster.paused = {1}
    sent = at_once(client, producer, [line(n) for n in range(5)])
    assert len(driver.held) >= 1
    for entry in [entry for item in driver.held for entry in item[4].entries][:stored]:
        cluster._produced(1, 1, entry)
    partition.log.clear()
    partition.forgetful = True
    cluster.move("t", 0, 2)
    FAULTS[fault](cluster, driver)
    assert wait(driver, sent) == [None] * 5
    driver.held.clear()
    assert partition.values() == [line(n) for n in range(5)]
    producer.close()


def forgets(cluster: FakeCluster, driver: FakeDriver) -> None:
    cluster.partition("t").log.clear()
    cluster.partition("t").forgetful = True


def breaks(cluster: FakeCluster, driver: FakeDriver) -> None:
    """The leader's process ended and came back, and the client heard that the connection broke."""
    forgets(cluster, driver)
    driver.core.receive(None, Disconnected(1), driver.now_ms())


def leads_again(cluster: FakeCluster, driver: FakeDriver) -> None:
    """The same broker leads, in a newer epoch."""
    forgets(cluster, driver)
    cluster.move("t", 0, 1)
    driver.core.refresh(driver.now_ms())
    driver.run()


def rests(cluster: FakeCluster, driver: FakeDriver) -> None:
    """The producer was silent for longer than it is remembered."""
    forgets(cluster, driver)
    driver.pass_time(25 * 3_600_000)


@pytest.mark.parametrize("happens", [breaks, leads_again, rests])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_producer_that_may_have_been_forgotten_begins_with_one_batch(fault: str, happens: Fault) -> None:
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    producer = client.producer(acks=1, batch_bytes=64)
    producer.send("t", "before").result()
    happens(cluster, driver)
    FAULTS[fault](cluster, driver)
    sent = at_once(client, producer, [line(n) for n in range(5)])
    assert wait(driver, sent) == [None] * 5
    assert cluster.partition("t").values() == [line(n) for n in range(5)]
    producer.close()


def test_after_a_doubt_the_oldest_goes_first() -> None:
    """The leader's process ended and came back; all that the client sees of it is that nobody answered."""
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    producer = client.producer(acks=1, batch_bytes=64)
    producer.send("t", "before").result()
    cluster.paused = {1}
    sent = at_once(client, producer, [line(n) for n in range(5)])
    driver.held.clear()
    cluster.paused.clear()
    forgets(cluster, driver)
    lose_first(driver)
    assert wait(driver, sent) == [None] * 5
    assert cluster.partition("t").values() == [line(n) for n in range(5)]
    producer.close()


def test_once_a_leader_has_answered_five_are_under_way() -> None:
    """Also when the first of them is slow, and after a pause between two bursts."""
    cluster, driver, client = make({"t": 1})
    under_way: list[int] = []
    producer = client.producer(batch_bytes=64)
    producer.send("t", "first").result()
    for burst in range(3):
        driver.pass_time(500)
        cluster.paused = {1}
        sent = at_once(client, producer, [line(n) for n in range(8)])
        under_way.append(sum(len(item[4].entries) for item in driver.held if isinstance(item[4], Produce)))
        driver.pass_time(burst * 1_000)
        driver.resume()
        assert wait(driver, sent) == [None] * 8
    assert under_way == [5, 5, 5]
    cluster.paused = {1}
    sent = at_once(client, producer, [line(0)])
    driver.pass_time(20_000)
    sent += at_once(client, producer, [line(n) for n in range(1, 5)])
    assert sum(len(item[4].entries) for item in driver.held if isinstance(item[4], Produce)) == 5
    driver.resume()
    assert wait(driver, sent) == [None] * 5
    producer.close()


def test_a_batch_that_waits_its_turn_is_not_sealed_early() -> None:
    """While the first is alone, records that linger go on joining one batch."""
    cluster, driver, client = make({"t": 1})
    client.topics()
    producer = client.producer(linger_ms=10)
    cluster.paused = {1}
    for n in range(3):
        producer.send("t", str(n))
        driver.pass_time(20)
    driver.resume()
    producer.flush()
    assert [batch.count for batch in cluster.partition("t").log] == [1, 2]
    producer.close()


# --------------------------------------------------------------------------------------------------------- acks=1 and a failover


class Split:
    """Two brokers with a log each, as after a failover under acks=1: neither has what only the other was sent."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.logs: dict[int, list[RecordBatch]] = {1: list(cluster.partition("t").log)}

    def lead(self, broker: int) -> None:
        partition = self.cluster.partition("t")
        if partition.leader is not None:
            self.logs[partition.leader] = partition.log
        partition.log = self.logs.setdefault(broker, [])
        self.cluster.move("t", 0, broker)


def values_of(log: list[RecordBatch]) -> list[bytes | None]:
    return [record.value for batch in log for record in decode_records(batch)]


@pytest.mark.parametrize("stored", range(4))
def test_acks_1_an_append_that_the_old_leader_may_have_is_never_stored_under_other_numbers(stored: int) -> None:
    """The new leader misses what was acknowledged before it. The old one comes back and leads: what it stored is there once."""
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500, delivery_timeout_ms=20_000)
    producer = client.producer(acks=1, batch_bytes=64)
    producer.send("t", "acknowledged").result()
    split = Split(cluster)
    cluster.paused = {1}
    sent = at_once(client, producer, [line(n) for n in range(3)])
    entries = [entry for item in driver.held for entry in item[4].entries]
    assert len(entries) == 3
    for entry in entries[:stored]:
        cluster._produced(1, 1, entry)
    split.lead(2)
    errors = wait(driver, sent)
    assert [type(error) for error in errors] == [Unavailable] * 3
    assert "t-0" in str(errors[0])
    assert "whether it was stored is unknown" in str(errors[0])
    driver.held.clear()
    cluster.paused.clear()
    assert producer.send("t", "after").result().offset == 0
    split.lead(1)
    client.topics()
    assert producer.send("t", "again").result().offset == 1 + stored
    found = values_of(cluster.partition("t").log)
    assert found == [b"acknowledged", *(line(n) for n in range(stored)), b"again"]
    producer._writer.failed.clear()
    producer.close()


def test_acks_1_what_was_certainly_not_stored_is_sent_under_new_numbers() -> None:
    cluster, _, client = make({"t": 1})
    producer = client.producer(acks=1)
    producer.send("t", "acknowledged").result()
    Split(cluster).lead(2)
    client.topics()
    refuse_first(cluster, Code.QUOTA_EXCEEDED)
    assert producer.send("t", "next").result().offset == 0
    last = cluster.partition("t").log[-1]
    assert (last.producer_epoch, last.base_sequence) == (1, 0)
    producer.close()


def test_acks_all_keeps_its_numbers_until_a_leader_knows_or_time_is_up() -> None:
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500, delivery_timeout_ms=20_000)
    producer = client.producer()
    producer.send("t", "acknowledged").result()
    split = Split(cluster)
    cluster.paused = {1}
    (batch,) = at_once(client, producer, [line(0)])
    cluster._produced(1, -1, driver.held[0][4].entries[0])
    split.lead(2)
    driver.pass_time(10_000)
    assert not batch.done
    driver.held.clear()
    cluster.paused.clear()
    split.lead(1)
    assert wait(driver, [batch]) == [None]
    assert cluster.partition("t").values() == [b"acknowledged", line(0)]
    producer.close()


# ----------------------------------------------------------------------------------------------------------- refused for good


@pytest.mark.parametrize(("code", "certain"), [(Code.INVALID_RECORD, InvalidRecord), (Code.MESSAGE_TOO_LARGE, MessageTooLarge)])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_refusal_says_nothing_of_an_earlier_copy(code: int, certain: type[ReplogError], earlier: bool) -> None:
    """The first copy was stored, and its answer lost. Only a batch without such a copy is known not to be stored."""
    cluster, _, client = make({"t": 1}, request_timeout_ms=500)
    producer = client.producer()
    producer.send("t", "before").result()
    answers = ["lost"] * earlier + ["refused"]

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce) or not answers:
            return None
        (entry,) = message.entries
        if answers.pop(0) == "lost":
            cluster._produced(broker, -1, entry)
            return []
        return [Produced([ProducedEntry(entry.request, code)])]

    cluster.override = override
    error = producer.send("t", "x").exception(60)
    assert type(error) is (Unavailable if earlier else certain)
    assert ("whether it was stored is unknown" in str(error)) is earlier
    assert producer.send("t", "y").exception(60) is None
    assert cluster.partition("t").values() == [b"before", *([b"x"] if earlier else []), b"y"]
    producer.close()


def test_what_was_behind_a_refused_batch_begins_again_together() -> None:
    """The second and third are behind a refused one. The second is known to be out of order when the leader changes; the new one,
    which does not know the producer, must not get the third first."""
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    partition = cluster.partition("t")
    producer = client.producer(acks=1, batch_bytes=64)
    producer.send("t", "before").result()

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce) or broker != 1:
            return None
        partition.log.clear()
        partition.forgetful = True
        cluster.move("t", 0, 2)
        cluster.override = None
        first, second, _ = message.entries
        return [Produced([ProducedEntry(first.request, Code.INVALID_RECORD), ProducedEntry(second.request, Code.OUT_OF_ORDER_SEQUENCE)])]

    cluster.override = override
    sent = at_once(client, producer, [line(n) for n in range(3)])
    errors = wait(driver, sent)
    assert [type(error) for error in errors] == [InvalidRecord, type(None), type(None)]
    assert partition.values() == [line(1), line(2)]
    producer._writer.failed.clear()
    producer.close()


def test_an_answer_to_what_was_before_a_refused_batch_may_come_late() -> None:
    """And that to the last may never come: it is behind one that is known not to be stored."""
    cluster, driver, client = make({"t": 1})
    producer = client.producer(acks=1, batch_bytes=64)
    producer.send("t", "before").result()

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce):
            return None
        cluster.override = None
        first, second, third, _ = message.entries
        refused = ProducedEntry(second.request, Code.INVALID_RECORD), ProducedEntry(third.request, Code.OUT_OF_ORDER_SEQUENCE)
        return [Produced([refused[0], cluster._produced(broker, 1, first), refused[1]])]

    cluster.override = override
    started = driver.now_ms()
    errors = wait(driver, at_once(client, producer, [line(n) for n in range(4)]))
    assert [type(error) for error in errors] == [type(None), InvalidRecord, type(None), type(None)]
    assert cluster.partition("t").values() == [b"before", line(0), line(2), line(3)]
    assert driver.now_ms() == started, "an answer was waited for"
    producer._writer.failed.clear()
    producer.close()


def test_what_waits_its_turn_goes_to_the_topic_that_was_made_again() -> None:
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    client.topics()
    producer = client.producer(batch_bytes=64)
    cluster.paused = {1}
    first, second = at_once(client, producer, [line(0), line(1)])
    cluster.delete("t")
    cluster.create("t")
    driver.held.clear()
    cluster.paused.clear()
    client.topics()
    driver.pass_time(5_000)
    assert isinstance(first.error, UnknownTopicId)
    assert (second.error, second.base_offset) == (None, 0)
    producer._writer.failed.clear()
    producer.close()


@pytest.mark.parametrize("answered", [0, 2])
def test_acks_1_what_another_leader_took_in_spite_of_the_gap_is_not_stored_again(answered: int) -> None:
    """A batch is refused for good. Another leader, which does not know the producer, takes the others, and is silent about the last."""
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    partition = cluster.partition("t")
    producer = client.producer(acks=1, batch_bytes=64)
    producer.send("t", "before").result()
    split = Split(cluster)
    partition.forgetful = True

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce):
            return None
        if broker == 1:
            return [Produced([ProducedEntry(message.entries[0].request, Code.INVALID_RECORD)])]
        said = [cluster._produced(broker, 1, entry) for entry in message.entries]
        return [Produced([entry for entry in said if entry.base_offset < answered])]

    cluster.override = override
    refused, *others = at_once(client, producer, [line(n) for n in range(answered + 2)])
    assert isinstance(refused.error, InvalidRecord)
    split.lead(2)
    client.topics()
    driver.wait(lambda: len(partition.log) > answered, 60)
    assert partition.values() == [line(n + 1) for n in range(answered + 1)]
    split.lead(1)
    client.topics()
    cluster.override = None
    errors = wait(driver, others)
    assert [type(error) for error in errors] == [type(None)] * answered + [Unavailable]
    assert partition.values() == [b"before"]
    producer._writer.failed.clear()
    producer.close()


def test_acks_1_a_refused_batch_says_nothing_of_those_before_it() -> None:
    """The third is refused, the second was stored without an answer: the next leader misses what was before it."""
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    producer = client.producer(acks=1, batch_bytes=64)
    producer.send("t", "before").result()
    split = Split(cluster)

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Produce):
            return None
        cluster.override = None
        first, second, third = message.entries
        stored = cluster._produced(broker, 1, first)
        cluster._produced(broker, 1, second)
        return [Produced([stored, ProducedEntry(third.request, Code.INVALID_RECORD)])]

    cluster.override = override
    sent = at_once(client, producer, [line(n) for n in range(3)])
    split.lead(2)
    client.topics()
    errors = wait(driver, sent)
    assert [type(error) for error in errors] == [type(None), Unavailable, InvalidRecord]
    assert cluster.partition("t").values() == []
    producer._writer.failed.clear()
    producer.close()
