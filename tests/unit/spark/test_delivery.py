"""Records through a sink into a real log: which batches they become, what is kept in memory, and how failures are told."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import replog
from replog.errors import MessageTooLarge, NotEnoughReplicas, UnknownTopicOrPartition, UsageError
from replog.records import RecordBatch, decode_records
from replog.spark import appending, filling
from replog.spark.appending import Appender
from replog.spark.at_least_once import AtLeastOnce
from replog.spark.cells import Cells, Placed, body_of, packed
from replog.spark.connections import Connection
from replog.spark.delivery import GUARANTEES, Attempt, Sink, Written
from replog.spark.filling import Filling
from replog.spark.guarantees import BATCH_BYTES, batch_bytes_of, check_guarantee, delivery_of

MINE = Attempt("job", 0, 3, 17)


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=3)
        cluster.create_topic("u")
        yield cluster


def some(*values: bytes, partition: int = 0, topic: str = "t") -> Placed:
    cells = packed(values)
    return Placed(topic, partition, Cells(len(values), len(cells), cells))


def batches(cluster: replog.Cluster, topic: str, partition: int) -> list[int]:
    """Records of each batch, from the first."""
    sizes, offset = [], 0
    while found := cluster.fetch(topic, partition, offset, max_bytes=1):
        sizes.append(len(found))
        offset = found[-1].offset + 1
    return sizes


def values(cluster: replog.Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.read(topic)]


def begun(cluster: replog.Cluster, *, batch_bytes: int = 1 << 20, acks: Any = -1) -> Sink:
    return delivery_of("at-least-once", acks=acks, compression=None, batch_bytes=batch_bytes).begin(cluster, MINE)


def test_records_of_a_partition_share_batches_of_the_size_given(cluster: replog.Cluster) -> None:
    sink = begun(cluster, batch_bytes=100)
    for number in range(10):
        sink.add(some(b"%02d" % number * 14, b"x", partition=number % 2))  # 30 and 3 bytes of cells
    written = sink.finish()
    assert written == Written(MINE, 20, (("t", 0, 10), ("t", 1, 10)))
    assert batches(cluster, "t", 0) == batches(cluster, "t", 1) == [6, 4]
    assert [value for value in values(cluster, "t") if value != b"x"] == [b"%02d" % n * 14 for n in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]


def test_a_record_larger_than_a_batch_goes_alone(cluster: replog.Cluster) -> None:
    sink = begun(cluster, batch_bytes=100)
    for value in (b"a", b"b" * 500, b"c", b"d"):
        sink.add(some(value))
    assert sink.finish().records == 4
    assert batches(cluster, "t", 0) == [1, 1, 2]


def test_a_batch_has_a_bounded_number_of_records(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "RECORDS_MAX", 5)
    sink = begun(cluster)
    for _ in range(4):
        sink.add(some(b"a", b"b"))
    sink.finish()
    assert batches(cluster, "t", 0) == [4, 4]


def test_a_topic_that_allows_less_gets_smaller_batches(cluster: replog.Cluster) -> None:
    cluster.create_topic("small", max_batch_bytes=4_000)
    sink = begun(cluster)
    for _ in range(8):
        sink.add(some(b"x" * 1_000, topic="small"))
    sink.finish()
    assert batches(cluster, "small", 0) == [2, 2, 2, 2]


def test_open_batches_together_are_bounded(cluster: replog.Cluster) -> None:
    mine = AtLeastOnce(-1, None, 1 << 20).begin(cluster, MINE)
    mine._filling = Filling(2_500)  # four records, with what is around them
    for number in range(30):
        mine.add(some(b"x" * 98, partition=0 if number < 20 else number % 3))
        assert sum(one.weight for one in mine._filling._open.values()) == mine._filling.bytes <= 2_500
    mine.finish()
    assert sum(sum(batches(cluster, "t", number)) for number in range(3)) == 30


def test_rows_that_come_one_by_one_do_not_weigh_more_than_they_are(cluster: replog.Cluster) -> None:
    """Else two thousand rows of thirty bytes would fill a megabyte, and leave in batches of a few rows."""
    filling = Filling(100_000)
    left = []
    for number in range(2_000):
        left += filling.add(some(b"%030d" % number, partition=number % 20), 1 << 20)
        assert filling.bytes <= 100_000
    assert left == []
    rest = filling.rest()
    assert (filling.bytes, len(rest)) == (0, 20)
    for (_, partition), found in rest:
        batch = RecordBatch(body_of(found.several, now_ms=0))
        assert [record.value for record in decode_records(batch)] == [b"%030d" % number for number in range(partition, 2_000, 20)]


def test_pieces_with_and_without_keys_are_joined(cluster: replog.Cluster) -> None:
    filling = Filling(10_000)
    for number in range(30):
        value = packed([b"%d" % number])
        key = packed([b"k%d" % number]) if number % 3 else None
        filling.add(Placed("t", 0, Cells(1, len(value) + len(key or b""), value, key)), 1 << 20)
    ((_, found),) = filling.rest()
    assert len(found.several) < 20
    batch = RecordBatch(body_of(found.several, now_ms=0))
    expected = [(b"%d" % number, b"k%d" % number if number % 3 else None) for number in range(30)]
    assert [(record.value, record.key) for record in decode_records(batch)] == expected


def test_nothing_to_write(cluster: replog.Cluster) -> None:
    assert begun(cluster).finish() == Written(MINE, 0, ())


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acknowledgements(cluster: replog.Cluster, acks: Any) -> None:
    sink = begun(cluster, acks=acks)
    sink.add(some(b"a"))
    sink.finish()
    assert values(cluster, "t") == [b"a"]


def test_a_refusal_is_raised(cluster: replog.Cluster) -> None:
    cluster.create_topic("small", max_batch_bytes=2_000)
    sink = begun(cluster)
    with pytest.raises(MessageTooLarge, match="the topic allows 2000"):
        sink.add(some(b"x" * 2_000, topic="small"))
    sink.abandon()


def test_an_earlier_refusal_ends_the_task_before_more_is_sent(cluster: replog.Cluster) -> None:
    sink = begun(cluster, batch_bytes=10)
    sink.add(some(b"a" * 20))
    cluster.delete_topic("t")

    def go_on() -> None:
        for _ in range(5):
            sink.add(some(b"b" * 20))
        sink.finish()

    with pytest.raises(UnknownTopicOrPartition):
        go_on()
    sink.abandon()


def test_a_failed_batch_is_told_by_finish_too(cluster: replog.Cluster) -> None:
    with replog.Cluster(brokers=2) as two:
        two.create_topic("t", min_isr=2)
        two.stop_broker(2)
        sink = AtLeastOnce(-1, None, 100).begin(two, MINE)
        sink._appender._config = type("Config", (), {"buffer_bytes": 1 << 20, "delivery_timeout_ms": 300})
        sink.add(some(b"a"))
        with pytest.raises((NotEnoughReplicas, TimeoutError)):
            sink.finish()
        sink.abandon()


def test_an_abandoned_attempt_sends_no_more(cluster: replog.Cluster) -> None:
    sink = begun(cluster, batch_bytes=10)
    sink.add(some(b"a" * 20))
    sink.add(some(b"b"))
    sink.abandon()
    assert values(cluster, "t") == [b"a" * 20]
    again = begun(cluster)
    again.add(some(b"c"))
    again.finish()
    assert values(cluster, "t") == [b"a" * 20, b"c"]


def test_memory_on_its_way_is_bounded(cluster: replog.Cluster) -> None:
    appender = Appender(cluster, acks=-1, compression=None)
    appender._config = type("Config", (), {"buffer_bytes": 100, "delivery_timeout_ms": 10_000})
    seen = []
    for _ in range(20):
        one = some(b"x" * 40)
        appender.append(one.topic, one.partition, [one.cells])
        seen.append(appender._writer.buffered)
    appender.finish()
    assert max(seen) <= 100
    assert appender._writer.buffered == 0
    assert len(values(cluster, "t")) == 20


@pytest.fixture
def stuck() -> Iterator[replog.Cluster]:
    """What is appended here stays on its way: a copy is missing."""
    with replog.Cluster(brokers=2) as two:
        two.create_topic("t", min_isr=2)
        two.stop_broker(2)
        yield two


def test_who_writes_faster_than_brokers_take_it_waits(stuck: replog.Cluster) -> None:
    appender = Appender(stuck, acks=-1, compression=None)
    appender._config = type("Config", (), {"buffer_bytes": 100, "delivery_timeout_ms": 300})
    one = some(b"x" * 40)
    for _ in range(2):
        appender.append(one.topic, one.partition, [one.cells])
    with pytest.raises((NotEnoughReplicas, TimeoutError)):
        appender.append(one.topic, one.partition, [one.cells])
    appender.give_up()


def test_what_was_on_its_way_when_an_attempt_was_abandoned_is_not_sent_again(stuck: replog.Cluster) -> None:
    sink = begun(stuck, batch_bytes=10)
    for value in (b"a" * 20, b"b" * 20):
        sink.add(some(value))
    assert stuck._core.has_batches
    sink.abandon()
    assert not stuck._core.has_batches


def test_a_process_keeps_its_producer_for_the_next_task(cluster: replog.Cluster) -> None:
    used = []
    for _ in range(3):
        appender = Appender(cluster, acks=-1, compression=None)
        used.append(appender._writer.producer_id)
        appender.finish()
    failed = Appender(cluster, acks=-1, compression=None)
    failed.give_up()
    used.append(Appender(cluster, acks=-1, compression=None)._writer.producer_id)
    assert used[0] == used[1] == used[2] == failed._writer.producer_id != used[3]
    two = [Appender(cluster, acks=-1, compression=None) for _ in range(2)]
    assert two[0]._writer is not two[1]._writer


def test_producers_go_with_their_client() -> None:
    with replog.Cluster(brokers=1) as cluster:
        Appender(cluster, acks=1, compression=None).finish()
        assert cluster in appending._idle
    there = weakref.ref(cluster)
    del cluster
    gc.collect()
    assert there() is None


def test_a_client_that_is_closed(cluster: replog.Cluster) -> None:
    sink = begun(cluster)
    sink.add(some(b"a"))
    cluster.close()
    with pytest.raises(UsageError, match="closed"):
        sink.finish()
    sink.abandon()
    with pytest.raises(UsageError, match="closed"):
        begun(cluster)


def test_guarantees() -> None:
    for one in GUARANTEES:
        assert check_guarantee("guarantee", one, "acks", -1) == one
    assert check_guarantee("guarantee", "at-least-once", "acks", 0) == "at-least-once"
    for one in ("exactly-once", "atomic"):
        with pytest.raises(UsageError, match=f"acks is 1; {one} needs 'all'"):
            check_guarantee("guarantee", one, "acks", 1)
    with pytest.raises(UsageError, match=r"deliveryGuarantee is 'at-lest-once'; .*did you mean 'at-least-once'"):
        check_guarantee("deliveryGuarantee", "at-lest-once", "replog.acks", -1)


def test_what_does_not_become_smaller_is_not_tried_for_a_while(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    whole = appending.body_of

    def counting(cells: Any, *, compression: Any, **how: Any) -> bytes:
        tried.append(compression is not None)
        return whole(cells, compression=compression, **how)

    monkeypatch.setattr(appending, "body_of", counting)
    small, large = b"x" * 2_000, bytes(n * n * 31 % 251 ^ n % 256 for n in range(256))
    for value, expected in ((large, [1] + [0] * 15 + [1] + [0] * 3), (small, [1] * 20)):
        tried.clear()
        sink = delivery_of("at-least-once", acks=-1, compression="lz4", batch_bytes=10).begin(cluster, MINE)
        for _ in range(20):
            sink.add(some(value))
        sink.finish()
        assert tried == expected
    assert Counter(values(cluster, "t")) == {small: 20, large: 20}
    tried.clear()
    sink = delivery_of("at-least-once", acks=-1, compression=None, batch_bytes=10).begin(cluster, MINE)
    sink.add(some(small))
    sink.finish()
    assert tried == [0]


def test_a_batch_size_that_was_not_given_is_that_of_bulk_writing() -> None:
    assert batch_bytes_of(Connection.of("127.0.0.1:9")) == BATCH_BYTES == 1 << 20
    assert batch_bytes_of(Connection.of("127.0.0.1:9", {"batch_bytes": 1_000, "linger_ms": 0})) == 1_000


def test_without_acknowledgements_what_has_not_left_the_process_is_on_its_way(
    cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    appender = Appender(cluster, acks=0, compression=None)
    monkeypatch.setattr(appender, "_config", type("Config", (), {"buffer_bytes": 100, "delivery_timeout_ms": 10_000}))
    unsent = [90, 80, 70]
    monkeypatch.setattr(type(cluster._driver), "unsent_to", lambda driver, broker: unsent.pop(0) if unsent else 0)
    one = some(b"x" * 40)
    appender.append(one.topic, one.partition, [one.cells])
    assert len(unsent) == 3, "what others have sent is theirs"
    appender.append(one.topic, one.partition, [one.cells])
    assert unsent == []
    appender.finish()
    assert values(cluster, "t") == [b"x" * 40] * 2


def test_what_was_given_up_keeps_no_records(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = Appender(cluster, acks=-1, compression=None)
    monkeypatch.setattr(type(cluster._driver), "run", lambda driver: None)
    one = some(b"x" * 40)
    cluster._core.crash(KeyboardInterrupt())  # whom to send to is forgotten
    batch = appender.append(one.topic, one.partition, [one.cells])
    assert batch.cells
    appender.give_up()
    assert (batch.done, batch.cells, batch.count) == (True, (), 1)


def test_records_that_nobody_takes_are_not_taken_for_sent(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(cluster._driver), "unsent_to", lambda driver, broker: 1)
    sink = begun(cluster, acks=0)
    sink.add(some(b"a"))
    monkeypatch.setattr(type(cluster._driver), "wait", lambda driver, done, timeout_s: done())
    with pytest.raises(replog.TimedOut, match="records sent under acks=0 to leave this process"):
        sink.finish()
