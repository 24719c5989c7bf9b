"""A query is started again, and the micro-batch in its checkpoint goes back: a run before has found that its log was replaced or cut."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.spark.columns import read_schema
from replog.spark.connections import Connection
from replog.spark.losses import DataLost
from replog.spark.options import ReadOptions
from replog.spark.stream_reading import StreamReading

BEGIN, BACK = {"t": {"0": 10}, "u": {"0": 1}}, {"t": {"0": 0}, "u": {"0": 1}}
SAID = "t-0: its log was replaced or cut, which was found before the query was started again: "
SAID += "the query goes back from offset 10 to offset 0"


def fill(cluster: FakeCluster, topic: str, count: int) -> None:
    client = Client(FakeDriver(cluster, seed=2))
    for n in range(count):
        client.append(topic, 0, [f"{topic}{n}"])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Ten records in topic t, one in u."""
    cluster, _, _ = make({"t": 1, "u": 1})
    fill(cluster, "t", 10)
    fill(cluster, "u", 1)
    monkeypatch.setattr(Connection, "client", lambda self: Client(FakeDriver(cluster, seed=1)))
    return cluster


def query(*, fails: bool, **more: Any) -> StreamReading:
    given = {"replog.bootstrap.servers": "h:1", "subscribe": "t,u", "startingOffsets": "earliest", "failOnDataLoss": fails, **more}
    return StreamReading(ReadOptions.parse(given, streaming=True), read_schema(headers=False))


def test_where_it_is_a_failure(world: FakeCluster) -> None:
    for _ in range(2):
        with pytest.raises(DataLost) as caught:
            query(fails=True).partitions(BEGIN, BACK)
        assert str(caught.value) == f"{SAID}; with the option failOnDataLoss=false it reads what is there now"
        assert (caught.value.topic, caught.value.partition, caught.value.first, caught.value.stop) == ("t", 0, 10, 10)


def test_where_it_is_none(world: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    again = query(fails=False)
    assert again.partitions(BEGIN, BACK) == []
    assert caplog.messages == [f"{SAID}; it reads what is there now (failOnDataLoss=false)"]
    (task,) = again.partitions(BACK, again.latestOffset(BACK, again.getDefaultReadLimit()))
    assert (task.value.start, task.value.stop) == (0, 10)
    assert len(caplog.messages) == 1


def test_a_partition_that_is_gone_where_that_is_no_failure(world: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    query(fails=False).partitions(BEGIN, {"u": {"0": 1}})
    (told,) = caplog.messages
    assert told.startswith("t-0: what was read up to offset 10 is not what is there now: the topic or the partition did not exist any more")


def test_what_the_run_itself_has_found_is_said_once(world: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    running = query(fails=False)
    limit = running.getDefaultReadLimit()
    assert running.latestOffset(BEGIN, limit) == BEGIN
    world.delete("t")
    world.create("t")
    fill(world, "t", 12)
    back = running.latestOffset(BEGIN, limit)
    assert back == BACK
    assert running.partitions(BEGIN, back) == []
    (told,) = caplog.messages
    assert told.startswith("t-0: what was read up to offset 10 is not what is there now: the topic was deleted and created again")


def test_the_empty_first_micro_batch_may_end_anywhere(world: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    """When it is replayed, where the query begins is asked again."""
    latest = query(fails=False, startingOffsets="latest")
    assert latest.initialOffset() == BEGIN
    assert latest.partitions(BEGIN, BACK) == []
    assert caplog.messages == []


def test_an_offset_that_was_given_and_is_not_there(world: FakeCluster) -> None:
    again = query(fails=True, startingOffsets='{"t": {"0": 15}, "u": {"0": 1}}')
    begin = again.initialOffset()
    with pytest.raises(DataLost, match="t-0: offsets 10 to 14 cannot be read any more: the partition ended before the offset") as caught:
        again.partitions(begin, {"t": {"0": 10}, "u": {"0": 1}})
    assert (caught.value.first, caught.value.stop) == (10, 15)


@pytest.mark.parametrize("offset", [0, 3])
def test_a_partition_that_is_added_before_the_first_micro_batch_is_replayed(
    world: FakeCluster, caplog: pytest.LogCaptureFixture, offset: int
) -> None:
    """The sink has failed, and offsets were given: the new partition has to be named, and is new, wherever it is named to begin."""
    first = query(fails=True, subscribe="t", startingOffsets='{"t": {"0": 0}}')
    end = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    assert end == {"t": {"0": 10}}
    world.add_partition("t", 1)
    client = Client(FakeDriver(world, seed=3))
    for n in range(4):
        client.append("t", 1, [str(n)])
    again = query(fails=True, subscribe="t", startingOffsets=f'{{"t": {{"0": 0, "1": {offset}}}}}')
    (task,) = again.partitions(again.initialOffset(), end)
    assert (task.value.place.partition, task.value.start, task.value.stop) == (0, 0, 10)
    found = again.latestOffset(end, again.getDefaultReadLimit())
    assert found == {"t": {"0": 10, "1": 0}}
    assert again.partitions(end, found) == []
    (task,) = again.partitions(found, again.latestOffset(found, again.getDefaultReadLimit()))
    assert (task.value.place.partition, task.value.start, task.value.stop) == (1, 0, 4)
    assert caplog.messages == []


def test_a_partition_that_is_gone_in_the_first_micro_batch(world: FakeCluster) -> None:
    """The run that has found it says so, also where nothing was read yet."""
    first = query(fails=True, startingOffsets='{"t": {"0": 3}, "u": {"0": 0}}')
    begin = first.initialOffset()
    world.delete("t")
    end = first.latestOffset(begin, first.getDefaultReadLimit())
    assert end == {"u": {"0": 1}}
    with pytest.raises(DataLost, match="t-0: what was read up to offset 3 is not what is there now: the topic or the partition does not"):
        first.partitions(begin, end)
