"""`PartitionWriter` without Spark around it: what it refuses, what it carries along, and what it writes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple
from zlib import crc32

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import Row

import replog
from replog.client.partitioner import murmur2_partition
from replog.errors import MessageTooLarge, UnknownTopicOrPartition, UsageError
from replog.spark import PartitionWriter
from replog.spark.at_least_once import AppendingSink
from replog.spark.connections import close_clients
from replog.spark.delivery import Attempt


def writer(topic: str = "t", **how: Any) -> PartitionWriter:
    how.setdefault("bootstrap", "127.0.0.1:9")
    how.setdefault("guarantee", "at-least-once")
    return PartitionWriter(topic, **how)


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=1) as cluster:
        cluster.create_topic("t", partitions=3)
        yield cluster


def write(cluster: replog.Cluster, rows: Any, *, task: int = 0, **how: Any) -> None:
    writer(**how)._write(cluster, Attempt("job", 0, task, 0), iter(rows))


def test_rows_by_key(cluster: replog.Cluster) -> None:
    rows = [Row(id=n, carrier=f"c{n % 7}") for n in range(1_000)]
    write(cluster, rows, key="carrier")
    found: dict[bytes, list[int]] = {}
    for record in cluster.read("t"):
        assert record.key is not None
        assert record.partition == crc32(record.key) % 3
        assert json.loads(record.value or b"")["carrier"] == record.key.decode()
        found.setdefault(record.key, []).append(json.loads(record.value or b"")["id"])
    assert found == {b"c%d" % k: list(range(k, 1_000, 7)) for k in range(7)}


@pytest.mark.parametrize(("task", "partition"), [(0, 0), (1, 1), (5, 2)])
def test_rows_without_keys_stay_together(cluster: replog.Cluster, task: int, partition: int) -> None:
    write(cluster, (b"%d" % n for n in range(600)), task=task)
    assert [(r.partition, r.value) for r in cluster.read("t")] == [(partition, b"%d" % n) for n in range(600)]


def test_every_way_to_choose(cluster: replog.Cluster) -> None:
    rows = [{"k": b"k", "v": "v", "h": {"a": b"1"}, "p": 2}]
    write(cluster, rows, key="k", value="v", headers="h", partition="p")
    write(cluster, rows, key=lambda row: row["k"], value=lambda row: row["v"].upper(), partition=lambda row: 0)
    write(cluster, [("k", "v")], key=0, value=1, partitioner="murmur2", compression=None, acks=1)
    found = [(r.partition, r.key, r.value, r.headers) for r in cluster.read("t")]
    assert found[0] == (0, b"k", b"V", [])
    assert (2, b"k", b"v", [("a", b"1")]) in found
    assert (murmur2_partition(b"k", 3), b"k", b"v", []) in found


def test_no_rows(cluster: replog.Cluster) -> None:
    write(cluster, [])
    assert list(cluster.read("t")) == []


def test_a_bad_row_is_named_by_its_place_in_the_task(cluster: replog.Cluster) -> None:
    rows = [Row(v="x")] * 700 + [Row(v=1)]
    with pytest.raises(UsageError, match="column 'v' of row 700 of Spark partition 9 is int; a value is bytes, str or None"):
        write(cluster, rows, value="v", task=9)
    with pytest.raises(MessageTooLarge, match="row 300 of Spark partition 0: a record of 9000000 bytes is too large; max_record_bytes is"):
        write(cluster, [b""] * 300 + [b"x" * 9_000_000])
    with pytest.raises(UnknownTopicOrPartition, match="row 257 of Spark partition 0: topic 't' has no partition 3; it has 0, 1, 2"):
        write(cluster, [(0,)] * 257 + [(3,)], partition=0)


def test_an_unknown_topic(cluster: replog.Cluster) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 'orders'; known topics are t"):
        write(cluster, [b"x"], topic="orders")


def test_rows_are_taken_as_they_are_needed(cluster: replog.Cluster) -> None:
    taken = 0

    def rows() -> Iterator[bytes]:
        nonlocal taken
        for taken in range(1, 2_001):  # noqa: B007  # read by the function around it
            yield b"x" * 1_000

    sizes = []
    mine = writer()
    add = mine._add_all

    def watched(sink: Any, *rest: Any) -> None:
        original = sink.add
        sink.add = lambda placed: (sizes.append((taken, placed.cells.records)), original(placed))
        add(sink, *rest)

    mine._add_all = watched  # type: ignore[method-assign]
    mine._write(cluster, Attempt("job", 0, 0, 0), rows())
    assert sizes[0][0] <= 256
    assert max(records for _, records in sizes) <= 256
    assert sum(records for _, records in sizes) == 2_000


def test_a_task_that_fails_leaves_nothing_to_be_sent(cluster: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned: list[AppendingSink] = []
    monkeypatch.setattr(AppendingSink, "abandon", lambda sink: abandoned.append(sink))
    with pytest.raises(UsageError, match="row 1 of Spark partition 0 is int"):
        write(cluster, [b"x", 1])
    assert len(abandoned) == 1
    assert list(cluster.read("t")) == []


def test_it_travels() -> None:
    limit = 3
    made = writer(key=lambda row: row[:limit], config={"request_timeout_ms": 5_000}, batch_bytes=1_000)
    there = cloudpickle.loads(cloudpickle.dumps(made))
    assert there._columns.key("abcdef") == "abc"
    assert (there.topic, there._connection, there._acks) == (made.topic, made._connection, made._acks)
    assert dict(there._connection.settings) == {"batch_bytes": 1_000, "request_timeout_ms": 5_000}
    plain = ForkingPickler.loads(bytes(ForkingPickler.dumps(writer(key="k"))))
    assert isinstance(plain, PartitionWriter)
    assert repr(plain) == "PartitionWriter('t', bootstrap='tcp://127.0.0.1:9', guarantee='at-least-once')"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"topic": "a/b"}, "topic name 'a/b' has '/'"),
        ({"bootstrap": "nobody"}, "nobody"),
        ({"key": 1.5}, "key is 1.5"),
        ({"format": "xml"}, "format is 'xml'; allowed are 'json', 'msgpack'"),
        ({"acks": 2}, 'acks is 2; allowed are 0, 1, "all"'),
        ({"guarantee": "exactly-once", "acks": 1}, "acks is 1; exactly-once needs 'all'"),
        ({"guarantee": "atomic"}, "guarantee 'atomic' needs a commit on the driver"),
        ({"guarantee": "once"}, "guarantee is 'once'"),
        ({"partitioner": "crc"}, "partitioner is 'crc'; allowed are 'crc32', 'murmur2'; did you mean 'crc32'"),
        ({"compression": "zstd"}, "compression is 'zstd'; allowed are 'lz4', None"),
        ({"batch_bytes": 1}, "batch_bytes is 1; allowed are 64 to"),
        ({"config": {"batch_byte": 1}}, "unknown configuration key 'batch_byte'; did you mean 'batch_bytes'"),
        ({"txn_app_id": "x"}, "txn_app_id needs txn_version beside it"),
        ({"txn_version": 3}, "txn_version needs txn_app_id beside it"),
        ({"txn_app_id": "x", "txn_version": 3}, "txn_app_id is for 'exactly-once' and 'atomic'"),
        ({"txn_app_id": "x", "txn_version": -1}, "txn_version is -1"),
        ({"txn_app_id": "", "txn_version": 1}, "txn_app_id is ''"),
        ({"txn_app_id": "j" * 245, "txn_version": 1, "guarantee": "exactly-once"}, "txn_app_id with the number .* allowed are 1 to 255"),
    ],
)
def test_what_it_refuses(how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        writer(**how)


def test_a_cluster_that_nobody_reaches_is_named() -> None:
    try:
        with pytest.raises(replog.Unavailable, match=r"no broker was reached at tcp://127.0.0.1:9"):
            writer(config={"request_timeout_ms": 200})([b"x"])
    finally:
        close_clients()


class Task(NamedTuple):
    """What Spark tells of the task that runs."""

    stage: int = 4
    task: int = 17

    def stageId(self) -> int:
        return self.stage

    def partitionId(self) -> int:
        return 0

    def taskAttemptId(self) -> int:
        return self.task


def run(packed: bytes, rows: Any, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker of Spark does."""
    with monkeypatch.context() as patched:
        patched.setattr(TaskContext, "_taskContext", task)
        cloudpickle.loads(packed)(rows)


@pytest.fixture
def reached() -> Iterator[replog.Cluster]:
    with replog.Cluster(brokers=1, listen="tcp://127.0.0.1:0") as cluster:
        cluster.create_topic("t", partitions=3)
        yield cluster
        close_clients()


def once(cluster: replog.Cluster, **how: Any) -> PartitionWriter:
    return writer(guarantee="exactly-once", bootstrap=cluster.endpoints, **how)


def stored(cluster: replog.Cluster) -> list[bytes | None]:
    return [record.value for record in cluster.read("t")]


def test_each_action_is_work_of_its_own_and_its_tasks_are_the_same(reached: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made = once(reached)
    for one in (made, made, copy.copy(made), copy.deepcopy(made)):
        packed = cloudpickle.dumps(one)
        for attempt in range(2):  # a task, and the task once more
            run(packed, [b"a", b"b"], Task(task=attempt), monkeypatch)
    assert len(stored(reached)) == 4 * 2


def test_actions_share_what_was_packed_once(reached: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broadcast."""
    packed = cloudpickle.dumps(once(reached))
    for attempt, stage in enumerate((4, 4, 5, 5)):
        run(packed, [b"%d" % stage], Task(stage, attempt), monkeypatch)
    assert stored(reached) == [b"4", b"5"]


def test_a_name_makes_actions_the_same_work(reached: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for attempt, version in enumerate((1, 1, 2, 1)):
        packed = cloudpickle.dumps(once(reached, txn_app_id="job", txn_version=version))
        run(packed, [b"%d" % version], Task(stage=attempt, task=attempt), monkeypatch)
    assert stored(reached) == [b"1", b"2"]


def several(first: PartitionWriter, second: PartitionWriter) -> bytes:
    def call(rows: list[Any]) -> None:
        with pytest.raises(UsageError, match="is int"):
            first([1])  # what has failed may be tried again
        first(rows[:1])
        second(rows[1:])

    return cloudpickle.dumps(call)


def test_a_second_call_of_a_task_is_refused(reached: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows would count as those of the first one."""
    made, named, again = once(reached), *(once(reached, txn_app_id="job", txn_version=1) for _ in range(2))
    for packed in (several(made, made), several(named, again)):
        with pytest.raises(UsageError, match="one task has called a PartitionWriter for topic 't' twice under one name"):
            run(packed, [b"a", b"b"], Task(), monkeypatch)
    assert stored(reached) == [b"a", b"a"]
    later = once(reached, txn_app_id="job", txn_version=2)
    for packed in (several(made, copy.copy(made)), several(later, once(reached, txn_app_id="job", txn_version=3))):
        run(packed, [b"c", b"d"], Task(task=18), monkeypatch)
    assert sorted(stored(reached)) == [b"a", b"a", b"c", b"c", b"d", b"d"]


def test_a_task_may_call_as_often_as_it_likes_at_least_once(reached: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(bootstrap=reached.endpoints)
    run(cloudpickle.dumps(lambda rows: [made([row]) for row in rows]), [b"a", b"b"], Task(), monkeypatch)
    assert stored(reached) == [b"a", b"b"]


def made_in_the_task(bootstrap: list[str], how: dict[str, Any], rows: list[bytes]) -> None:
    PartitionWriter("t", bootstrap=bootstrap, **how)(rows)


def test_what_is_made_in_a_task_needs_a_name(reached: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt would write under another one."""
    ways: list[dict[str, Any]] = [{}, {"txn_app_id": "job", "txn_version": 1}, {"guarantee": "at-least-once"}]
    for how in ways:
        packed = cloudpickle.dumps(partial(made_in_the_task, reached.endpoints, how))
        if how:
            run(packed, [b"a"], Task(), monkeypatch)
        else:
            with pytest.raises(UsageError, match="this PartitionWriter for topic 't' was made in a task"):
                run(packed, [b"a"], Task(), monkeypatch)
    assert stored(reached) == [b"a", b"a"]


def test_a_copy_made_in_a_task_writes_under_the_same_name(reached: replog.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made = once(reached)
    packed = cloudpickle.dumps(lambda rows: copy.copy(made)(rows))
    for attempt in range(2):
        run(packed, [b"a"], Task(task=attempt), monkeypatch)
    assert stored(reached) == [b"a"]


def test_calls_outside_of_spark_are_work_of_their_own(cluster: replog.Cluster) -> None:
    there = copy.copy(writer(guarantee="exactly-once"))
    for _ in range(2):
        there._write(cluster, Attempt(there._writer(), 0, 0, 0), iter([b"a"]))
    assert len(list(cluster.read("t"))) == 2
