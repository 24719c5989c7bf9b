"""Brokers with `auto_create_topics`, and reads without Spark around them: they make nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.spark.reading import append, batch, begun, latest, micro_batch, stream

import replog
from replog.errors import UnknownTopicOrPartition
from replog.spark.connections import close_clients
from replog.spark.losses import DataLost


@pytest.fixture
def cluster() -> Iterator[replog.Cluster]:
    """Three brokers that make what is sought."""
    with replog.Cluster(brokers=3, listen="tcp://127.0.0.1:0", config={"auto_create_topics": True}) as cluster:
        append(cluster, ["a", "b"])
        yield cluster
        close_clients()


def test_a_name_that_is_misspelt_is_an_error(cluster: replog.Cluster, servers: str) -> None:
    for read in (batch(servers, subscribe="tt").partitions, stream(servers, subscribe="tt").initialOffset):
        with pytest.raises(UnknownTopicOrPartition, match="unknown topic 'tt'; known topics are t"):
            read()
    assert cluster.topics() == ["t"]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted_under_a_stream_stays_deleted(cluster: replog.Cluster, servers: str, fails: bool) -> None:
    cluster.create_topic("u")
    reader = stream(servers, subscribe="t,u", startingOffsets="earliest", failOnDataLoss=fails)
    start = begun(reader)
    read = latest(reader, start)
    assert micro_batch(reader, start, read) == [(0, 0, b"a"), (0, 1, b"b")]
    cluster.delete_topic("t")
    end = latest(reader, read)
    assert end == {"u": {"0": 0}}
    if fails:
        with pytest.raises(DataLost, match=r"t-0: what was read up to offset 2 .*: the topic or the partition does not exist any more"):
            reader.partitions(read, end)
    else:
        assert reader.partitions(read, end) == []
        assert latest(reader, end) == end
    with pytest.raises(DataLost, match="t-0: offsets 0 to 1 cannot be read any more: the topic or the partition does not exist any more"):
        stream(servers, subscribe="t,u").partitions(start, read)
    assert cluster.topics() == ["u"]
    append(cluster, ["c"])
    assert latest(stream(servers, subscribe="t,u"), end) == {"t": {"0": 0}, **end}, "whoever writes makes another one"
