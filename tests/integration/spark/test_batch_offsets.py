"""Batch reads without Spark around them: where they begin and end, how they are sliced, and what is lost on the way."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from tests.integration.spark.reading import LONG_AGO_MS, ROLLING, append, batch, recreated, rows, trimmed

import replog
from replog.errors import OffsetOutOfRange, UnknownTopicOrPartition, UsageError
from replog.records import Record
from replog.spark.losses import DataLost


@pytest.fixture
def filled(cluster: replog.Cluster) -> replog.Cluster:
    """Topic t: ten records in partition 0, at 1000, 1010, ...; three in partition 1, all at 1000."""
    cluster.create_topic("t", partitions=2)
    for n in range(10):
        append(cluster, [f"a{n}"], timestamp_ms=1_000 + 10 * n)
    append(cluster, ["b0", "b1", "b2"], partition=1, timestamp_ms=1_000)
    return cluster


def read(servers: str, **options: Any) -> list[tuple[int, int, bytes | None]]:
    reader = batch(servers, **{"subscribe": "t", **options})
    return rows(reader, reader.partitions())


def offsets(servers: str, **options: Any) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for partition, offset, _ in read(servers, **options):
        found.setdefault(partition, []).append(offset)
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {0: range(10), 1: range(3)}),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, {0: range(10), 1: range(3)}),
        ({"startingOffsets": {"t": {"0": 4, "1": -2}}, "endingOffsets": {"t": {"0": 6, "1": -1}}}, {0: [4, 5], 1: range(3)}),
        ({"startingOffsets": {"t": {"0": 10, "1": 3}}}, {}),
        ({"startingOffsets": {"t": {"0": 6, "1": 1}}, "endingOffsets": {"t": {"0": 2, "1": 2}}}, {1: [1]}),
        ({"startingTimestamp": 1_035, "startingOffsetsByTimestampStrategy": "latest"}, {0: range(4, 10)}),
        ({"startingTimestamp": 0, "endingTimestamp": 1_050}, {0: range(5), 1: range(3)}),
        ({"startingOffsetsByTimestamp": {"t": {"0": 1_080, "1": 900}}}, {0: [8, 9], 1: range(3)}),
        ({"endingOffsetsByTimestamp": {"t": {"0": 1_010, "1": 9_000}}}, {0: [0], 1: range(3)}),
        ({"startingTimestamp": 1_000, "startingOffsets": {"t": {"0": 9, "1": 0}}}, {0: range(10), 1: range(3)}),
        ({"assign": {"t": [1]}, "subscribe": None}, {1: range(3)}),
        ({"subscribePattern": "t|u.*", "subscribe": None}, {0: range(10), 1: range(3)}),
    ],
)
@pytest.mark.usefixtures("filled")
def test_where_a_read_begins_and_ends(servers: str, options: dict[str, Any], expected: dict[int, Any]) -> None:
    given = {name: value for name, value in {"subscribe": "t", **options}.items() if value is not None}
    reader = batch(servers, **given)
    found: dict[int, list[int]] = {}
    for partition, offset, _ in rows(reader, reader.partitions()):
        found.setdefault(partition, []).append(offset)
    assert found == {partition: list(wanted) for partition, wanted in expected.items()}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"subscribe": "nope"}, UnknownTopicOrPartition, "unknown topic 'nope'; known topics are t"),
        ({"assign": {"t": [1, 7]}, "subscribe": None}, UnknownTopicOrPartition, "partition 7 of topic 't'; it has 0, 1"),
        ({"startingOffsets": {"t": {"0": 4}}}, UsageError, "startingOffsets names no partition 1 of topic 't'"),
        ({"startingOffsets": {"t": {"0": 4, "1": 0, "2": 0}}}, UsageError, "names partition 2 of topic 't', which is not read"),
        ({"endingOffsets": {"t": {"0": 4, "1": 0}, "u": {"0": 1}}}, UsageError, "endingOffsets names partition 0 of topic 'u'"),
        ({"startingTimestamp": 1_035}, OffsetOutOfRange, "startingTimestamp: no record of t-1 is as young as 1035; with startingOffsetsBy"),
        ({"startingOffsets": {"t": {"0": 11, "1": 0}}}, DataLost, "t-0: offsets 10 to 10 cannot be read any more: .* ends before offset"),
        ({"endingOffsets": {"t": {"0": 12, "1": 3}}}, DataLost, "t-0: offsets 10 to 11 cannot be read any more.*failOnDataLoss=false"),
    ],
)
@pytest.mark.usefixtures("filled")
def test_what_cannot_be_read_is_said_in_a_sentence(servers: str, options: dict[str, Any], error: type[Exception], text: str) -> None:
    given = {name: value for name, value in {"subscribe": "t", **options}.items() if value is not None}
    with pytest.raises(error, match=text) as caught:
        batch(servers, **given).partitions()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("filled")
def test_offsets_that_are_not_held_are_left_out_if_so_wished(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    begin = {"startingOffsets": {"t": {"0": 11, "1": 0}}, "endingOffsets": {"t": {"0": 12, "1": 9}}}
    assert offsets(servers, **begin, failOnDataLoss="false") == {1: [0, 1, 2]}
    said = [record.getMessage() for record in caplog.records if record.name == "replog.spark"]
    assert [text.split(":")[0] for text in said] == ["t-0", "t-0", "t-1"]


def test_slices_join_to_the_whole_whatever_the_batches(cluster: replog.Cluster, servers: str) -> None:
    """Batches of many sizes, packed and plain, with and without keys: each row comes once, in order, with its own bytes."""
    cluster.create_topic("t")
    chance = random.Random(7)
    expected = []
    with cluster.producer(compression="lz4") as packed, cluster.producer(compression=None) as plain:
        for _ in range(60):
            producer = chance.choice([packed, plain])
            for _ in range(chance.choice([1, 3, 50])):
                value = chance.choice([None, b"", b"x" * chance.randrange(300), chance.randbytes(20)])
                producer.send("t", value, key=chance.choice([None, b"k"]))
                expected.append(value)
            producer.flush()
    total = len(expected)
    for sliced in ({}, {"minPartitions": 7}, {"maxRecordsPerPartition": 11}, {"minPartitions": 3, "maxRecordsPerPartition": 100_000}):
        reader = batch(servers, subscribe="t", **sliced)
        tasks = reader.partitions()
        assert rows(reader, tasks) == [(0, offset, value) for offset, value in enumerate(expected)]
        assert len(tasks) == {"minPartitions": sliced.get("minPartitions"), "maxRecordsPerPartition": -(-total // 11)}.get(
            next(iter(sliced), ""), 1
        )


def test_small_fetches_and_small_slices_lose_nothing(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    for n in range(40):
        cluster.append("t", 0, [Record(f"{n}-{i}" * 30) for i in range(10)])
    reader = batch(servers, subscribe="t", **{"replog.fetch.bytes": 1_024, "minPartitions": 3})
    expected = [(f"{n}-{i}" * 30).encode() for n in range(40) for i in range(10)]
    assert [value for _, _, value in rows(reader, reader.partitions())] == expected


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_trimmed_between_planning_and_reading(cluster: replog.Cluster, servers: str, fails: bool) -> None:
    cluster.create_topic("t", **ROLLING)
    append(cluster, ["0", "1", "2"], timestamp_ms=LONG_AGO_MS)
    append(cluster, ["3", "4"])
    reader = batch(servers, subscribe="t", failOnDataLoss=fails)
    tasks = reader.partitions()
    assert trimmed(cluster) == 3
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 0 to 2 cannot be read any more: they were trimmed by the topic's retention"):
            rows(reader, tasks)
    else:
        assert rows(reader, tasks) == [(0, 3, b"3"), (0, 4, b"4")]


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_trimmed_before_planning(cluster: replog.Cluster, servers: str, fails: bool) -> None:
    cluster.create_topic("t", **ROLLING)
    append(cluster, ["0", "1", "2"], timestamp_ms=LONG_AGO_MS)
    append(cluster, ["3", "4"])
    trimmed(cluster)
    begin = {"startingOffsets": {"t": {"0": 1}}, "failOnDataLoss": fails}
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 1 to 2 cannot be read any more: the partition begins at offset 3 by now"):
            read(servers, **begin)
    else:
        assert offsets(servers, **begin) == {0: [3, 4]}
    assert offsets(servers) == {0: [3, 4]}  # nothing is lost to whoever asks for what there is


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_a_topic_that_goes_between_planning_and_reading(cluster: replog.Cluster, servers: str, fails: bool, again: bool) -> None:
    """The records of another topic of the same name are never taken for those that were planned."""
    cluster.create_topic("t")
    append(cluster, ["0", "1"])
    reader = batch(servers, subscribe="t", failOnDataLoss=fails)
    tasks = reader.partitions()
    cluster.delete_topic("t")
    if again:
        cluster.create_topic("t")
        append(cluster, ["x", "y", "z"])
    if fails:
        why = "deleted and created again" if again else "does not exist any more"
        with pytest.raises(DataLost, match=f"t-0: offsets 0 to 1 cannot be read any more: the topic .*{why}"):
            rows(reader, tasks)
    else:
        assert rows(reader, tasks) == []


def test_a_recreated_topic_is_read_from_its_own_beginning(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    append(cluster, ["0", "1"])
    assert offsets(servers) == {0: [0, 1]}
    recreated(cluster)
    append(cluster, ["x"])
    assert read(servers) == [(0, 0, b"x")]


def test_a_task_of_nothing(servers: str) -> None:
    """Spark makes one where there is nothing to read."""
    assert rows(batch(servers, subscribe="t"), [InputPartition(None)]) == []


def test_nobody_there_is_said_with_the_addresses() -> None:
    options = {"replog.fetch.timeout.ms": 300, "subscribe": "t"}
    with pytest.raises(replog.Unavailable, match=r"no broker was reached at tcp://127.0.0.1:1 \(replog.bootstrap.servers\): waited 0\."):
        batch("127.0.0.1:1", **options).partitions()


def test_memory_does_not_grow_with_what_is_read(cluster: replog.Cluster, servers: str) -> None:
    """Thirty megabytes in one task: Arrow never holds more than a few of them."""
    cluster.create_topic("t")
    chunk = [random.Random(n).randbytes(1_000) for n in range(1_000)]
    for _ in range(30):
        cluster.append("t", 0, chunk)
    reader = batch(servers, subscribe="t")
    (task,) = reader.partitions()
    before, highest, count = pa.total_allocated_bytes(), 0, 0
    for made in reader.read(task):
        highest = max(highest, pa.total_allocated_bytes() - before)
        count += made.num_rows
    assert count == 30_000
    assert highest < 5_000_000
