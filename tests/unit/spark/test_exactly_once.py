"""Tasks that are run again store their rows once: in one batch, in pieces, at once, after a change of leader, with a broker that goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import replog
from replog.errors import Code, MessageTooLarge, NotEnoughReplicas, TimedOut, UnknownStage, UsageError
from replog.messages import ProducedEntry, Published
from replog.model import PartitionId
from replog.spark.cells import Cells, Placed, packed
from replog.spark.delivery import Attempt, Sink, Written
from replog.spark.exactly_once import ExactlyOnce
from replog.spark.work import _AppendOp, _PublishOp

MINE = Attempt("job", 5, 3, 17)
SMALL = 5_000
"""Of a batch: some three records of a thousand bytes."""


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=2, max_batch_bytes=SMALL)
        cluster.create_topic("large", partitions=2)
        yield cluster


def some(*values: bytes, partition: int = 0, topic: str = "t") -> Placed:
    cells = packed(values)
    return Placed(topic, partition, Cells(len(values), len(cells), cells))


def row(number: int) -> bytes:
    return b"%03d" % number * 330


def begun(cluster: replog.Cluster, attempt: Attempt = MINE, batch_bytes: int = 1 << 20) -> Any:
    return ExactlyOnce(None, batch_bytes).begin(cluster, attempt)


def add(sink: Sink, rows: range, **where: Any) -> None:
    for number in rows:
        sink.add(some(row(number), **where))


def add_last(sink: Sink, value: bytes) -> None:
    sink.add(some(value))
    sink.finish()


def values(cluster: replog.Cluster, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in cluster.read(topic)]


@pytest.mark.parametrize("rows", [1, 3, 4, 30])
def test_an_attempt_that_is_repeated_stores_nothing(cluster: replog.Cluster, rows: int) -> None:
    told = []
    for attempt in (17, 18):
        sink = begun(cluster, Attempt("job", 5, 3, attempt))
        for number in sorted(range(rows), key=lambda n: n * attempt % 7):  # in another order
            sink.add(some(row(number), partition=number % 2))
        told.append(sink.finish())
    assert Counter(values(cluster)) == Counter(map(row, range(rows)))
    assert [one.records for one in told] == [rows, rows]
    assert told[0].places == told[1].places
    assert (told[0].name, told[0].pieces) == ("", ())  # nothing is left for the driver


def test_what_fits_is_one_batch_and_what_does_not_is_seen_whole(cluster: replog.Cluster) -> None:
    sink = begun(cluster, batch_bytes=500)
    add(sink, range(3))
    sink.finish()
    assert len(cluster.fetch("t", 0, 0, max_bytes=1)) == 3
    sink = begun(cluster, Attempt("job", 6, 3, 17))
    add(sink, range(3, 40))
    assert len(values(cluster)) == 3  # put aside so far
    assert sink.finish() == Written(Attempt("job", 6, 3, 17), 37, (("t", 0, 37),))
    assert values(cluster) == list(map(row, range(40)))


def test_an_earlier_version_is_done(cluster: replog.Cluster) -> None:
    for version, rows in ((5, range(2)), (4, range(2, 4)), (3, range(4, 20)), (6, range(20, 40)), (5, range(40, 60))):
        sink = begun(cluster, Attempt("job", version, 3, 0))
        add(sink, rows)
        assert sink.finish().records == len(rows)
    assert values(cluster) == [row(number) for number in (0, 1, *range(20, 40))]


def test_slices_writers_and_topics_are_told_apart(cluster: replog.Cluster) -> None:
    for topic in ("t", "large"):
        for writer, number in (("job", 3), ("job", 4), ("bob", 3), ("job/3", 3)):
            sink = begun(cluster, Attempt(writer, 5, number, 0))
            sink.add(some(b"x", topic=topic))
            sink.finish()
    assert len(values(cluster)) == len(values(cluster, "large")) == 4


def test_two_attempts_at_once(cluster: replog.Cluster) -> None:
    one, two = begun(cluster), begun(cluster, Attempt("job", 5, 3, 18))
    for number in range(20):
        one.add(some(row(number)))
        two.add(some(row(19 - number)))
    assert two.finish().records == one.finish().records == 20
    assert values(cluster) == [row(19 - number) for number in range(20)]


def test_an_attempt_that_finds_its_work_done_stages_no_more(cluster: replog.Cluster) -> None:
    late = begun(cluster, Attempt("job", 5, 3, 18))
    add(late, range(8))
    sink = begun(cluster)
    add(sink, range(20))
    sink.finish()
    add(late, range(8, 16))
    late._work.finish()
    assert late._done == {("t", 0)}
    before = dict(late._pieces)
    add(late, range(16, 20))
    assert late.finish().records == 20
    assert late._pieces == before
    assert values(cluster) == list(map(row, range(20)))


def test_attempts_of_two_applications_do_not_mix_though_spark_numbers_them_alike(cluster: replog.Cluster) -> None:
    first = begun(cluster)
    add(first, range(8))  # and is killed
    first._work.finish()
    again = begun(cluster)
    add(again, range(19, -1, -1))
    again.finish()
    assert Counter(values(cluster)) == Counter(map(row, range(20)))


def test_another_leader_has_nothing_of_what_was_put_aside(cluster: replog.Cluster) -> None:
    sink = begun(cluster)
    add(sink, range(20))
    sink._work.finish()
    cluster.stop_broker(cluster.leader("t", 0))
    with pytest.raises(UnknownStage, match=r"t-0: what was put aside there is gone: .* a task, a micro-batch, or a job"):
        sink.finish()
    sink.abandon()
    assert values(cluster) == []
    again = begun(cluster, Attempt("job", 5, 3, 18))
    add(again, range(20))
    again.finish()
    assert values(cluster) == list(map(row, range(20)))


def test_a_broker_that_goes_while_one_batch_is_under_way(cluster: replog.Cluster) -> None:
    sink = begun(cluster)
    add(sink, range(3))
    leader = cluster.leader("t", 0)
    cluster.stop_broker(leader)
    sink.finish()
    cluster.start_broker(leader)
    again = begun(cluster, Attempt("job", 5, 3, 18))
    add(again, range(3))
    again.finish()
    assert values(cluster) == list(map(row, range(3)))


def test_rows_for_many_partitions_keep_to_the_memory() -> None:
    most = 0
    with replog.Cluster(brokers=1, client_config={"buffer_bytes": 200_000, "max_record_bytes": 100_000}) as cluster:
        cluster.create_topic("wide", partitions=200)
        sink = begun(cluster)
        for number in range(6_000):
            sink.add(some(b"%030d" % number, partition=number % 200, topic="wide"))
            most = max(most, sink._filling.bytes + sink._work._outstanding.bytes)
        assert sink.finish().records == 6_000
        assert Counter(values(cluster, "wide")) == Counter(b"%030d" % number for number in range(6_000))
    assert most <= 300_000


def test_a_row_that_no_batch_holds(cluster: replog.Cluster) -> None:
    for rows in (range(1), range(20)):
        sink = begun(cluster)
        add(sink, rows)
        with pytest.raises(MessageTooLarge, match=r"\(1 records\) is too large; the topic allows 5000 \(max_batch_bytes\)"):
            add_last(sink, b"x" * SMALL)
        sink.abandon()
    assert values(cluster) == []


def test_a_writer_that_cannot_be_one(cluster: replog.Cluster) -> None:
    with pytest.raises(UsageError, match="the key of a writer has 302 bytes; allowed are 1 to 255"):
        begun(cluster, Attempt("j" * 300, 5, 3, 0))


def test_nothing_to_write(cluster: replog.Cluster) -> None:
    assert begun(cluster).finish() == Written(MINE, 0, ())


def test_a_client_that_is_closed(cluster: replog.Cluster) -> None:
    sink = begun(cluster)
    sink.add(some(b"a"))
    cluster.close()
    with pytest.raises(UsageError, match="closed"):
        sink.finish()
    sink.abandon()
    with pytest.raises(UsageError, match="closed"):
        begun(cluster)


def test_what_is_under_way_is_bounded() -> None:
    """Whoever writes faster than brokers take it waits: here for good, because a copy is missing."""
    config = {"buffer_bytes": 20_000, "max_record_bytes": 10_000, "delivery_timeout_ms": 300}
    with replog.Cluster(brokers=2, client_config=config) as cluster:
        cluster.create_topic("t", partitions=4, min_isr=2)
        cluster.stop_broker(2)
        work = begun(cluster)._work

        def append_all() -> None:
            for partition in range(4):
                work.append(("t", partition), [some(b"x" * 5_000).cells])
                assert work._outstanding.bytes <= 20_000

        with pytest.raises((NotEnoughReplicas, TimedOut)):
            append_all()
        work.give_up()
        assert work._outstanding.bytes == 0


def test_who_waits_for_another_publication_asks_again_soon() -> None:
    """Its turn comes when that has been appended, however often it has asked."""
    refused = ProducedEntry(1, Code.QUOTA_EXCEEDED), Published(1, PartitionId(b"", 0, 0), Code.QUOTA_EXCEEDED)
    one, other = _AppendOp("t", 0, b"", 0), _PublishOp("t", 0, 0, writer="job/3", version=5, made_ms=0, attempts=[("a", 1)])
    core: Any = None
    for _ in range(20):
        assert one.answered(core, refused[0], 0) == other.answered(core, refused[1], 0) == Code.QUOTA_EXCEEDED
        one.failures, other.failures = one.failures + 1, other.failures + 1  # as the core counts
    assert one.failures == other.failures == 2
