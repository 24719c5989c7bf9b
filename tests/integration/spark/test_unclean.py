"""An unclean election removes records under a reader. The log grows past where it was, so that offsets alone do not tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.spark.reading import append, batch, begun, latest, micro_batch, rows, stream

import replog
from replog.errors import Code, TimedOut
from replog.spark.connections import close_clients
from replog.spark.losses import DataLost
from replog.spark.positions import EpochEndOp

T = {"subscribe": "t", "startingOffsets": "earliest"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[replog.Cluster]:
    """Topic t: four records, of which broker 2 has the first two. Broker 3 is there for who asks where the others are."""
    with replog.Cluster(tmp_path / "data", brokers=3, listen="tcp://127.0.0.1:0") as cluster:
        cluster.create_topic("t", assignment={0: [1, 2]}, min_isr=1)
        append(cluster, ["a", "b"])
        cluster.kill_broker(2)
        append(cluster, ["c", "d"])
        yield cluster
        close_clients()


def cut(cluster: replog.Cluster) -> None:
    """Broker 2 leads, without c and d; then there are others in their place."""
    cluster.kill_broker(1)
    cluster.start_broker(2)
    assert cluster.elect_leaders([("t", 0)], unclean=True) == {("t", 0): None}
    with replog.connect(cluster.endpoints) as another:  # whose own records were not cut
        append(another, ["x", "y", "z"])


@pytest.mark.parametrize("fails", [True, False])
def test_between_micro_batches(cluster: replog.Cluster, servers: str, fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    reader = stream(servers, failOnDataLoss=fails, **T)
    start = latest(reader, begun(reader))
    assert start == {"t": {"0": 4}}
    cut(cluster)
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 2 to 3 cannot be read any more: an unclean election removed them; with the opt"):
            micro_batch(reader, start, latest(reader, start))
        return
    back = latest(reader, start)
    assert back == {"t": {"0": 2}}
    assert micro_batch(reader, start, back) == []
    assert micro_batch(reader, back, latest(reader, back)) == [(0, 2, b"x"), (0, 3, b"y"), (0, 4, b"z")]
    assert [record.name for record in caplog.records].count("replog.spark") == 1, "it is said once"


def test_what_a_query_has_failed_for_it_fails_for_again(cluster: replog.Cluster, servers: str) -> None:
    """A new reader has offsets alone, and the log is longer than where they are. But they went back, and Spark has kept that."""
    reader = stream(servers, **T)
    start = latest(reader, begun(reader))
    cut(cluster)
    back = latest(reader, start)
    assert back == {"t": {"0": 2}}
    with pytest.raises(DataLost, match="t-0: offsets 2 to 3 cannot be read any more: an unclean election removed them"):
        reader.partitions(start, back)
    for again in (stream(servers, **T), stream(servers, **T)):
        with pytest.raises(DataLost, match="started again: the query goes back from offset 4 to offset 2; with the option"):
            again.partitions(start, back)
    going_on = stream(servers, failOnDataLoss=False, **T)
    assert micro_batch(going_on, start, back) == []
    assert micro_batch(going_on, back, latest(going_on, back)) == [(0, 2, b"x"), (0, 3, b"y"), (0, 4, b"z")]


@pytest.mark.parametrize("fails", [True, False])
def test_nobody_says_for_a_while_where_the_epoch_ended(
    cluster: replog.Cluster, servers: str, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The question is asked until it is answered; until then nothing is read there."""
    reader = stream(servers, failOnDataLoss=fails, **T, **{"replog.fetch.timeout.ms": 1_500})
    start = latest(reader, begun(reader))
    cut(cluster)
    with monkeypatch.context() as patched:
        patched.setattr(EpochEndOp, "answered", lambda self, core, answer, now_ms: Code.NOT_LEADER_OR_FOLLOWER)
        assert latest(reader, start) == start
        assert micro_batch(reader, start, start) == []
        reader.prepareForTriggerAvailableNow()
        with pytest.raises(TimedOut, match=r"waited 1.5 s \(replog.fetch.timeout.ms\) for the leader of t-0 to say where the epoch"):
            latest(reader, start)
    reader._target = None
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 2 to 3 cannot be read any more: an unclean election removed them"):
            micro_batch(reader, start, latest(reader, start))
    else:
        assert latest(reader, start) == {"t": {"0": 2}}


@pytest.mark.parametrize("fails", [True, False])
def test_between_an_end_and_its_plan(cluster: replog.Cluster, servers: str, fails: bool) -> None:
    """x and y stand where the end was looked up; they are read once, when the query has gone back to where the log was cut."""
    reader = stream(servers, failOnDataLoss=fails, **T)
    start = begun(reader)
    end = latest(reader, start)
    cut(cluster)
    tasks = reader.partitions(start, end)
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 2 to 3 cannot be read any more: an unclean election removed them"):
            rows(reader, tasks)
        return
    assert rows(reader, tasks) == [(0, 0, b"a"), (0, 1, b"b")]
    back = latest(reader, end)
    assert back == {"t": {"0": 2}}
    assert micro_batch(reader, back, latest(reader, back)) == [(0, 2, b"x"), (0, 3, b"y"), (0, 4, b"z")]


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize(("begin", "left"), [(0, [(0, 0, b"a"), (0, 1, b"b")]), (3, [])])
def test_between_planning_and_reading(
    cluster: replog.Cluster, servers: str, fails: bool, begin: int, left: list[tuple[int, int, bytes]]
) -> None:
    """x and y, which stand where c and d stood, are not what was planned."""
    reader = batch(servers, subscribe="t", failOnDataLoss=fails, startingOffsets={"t": {"0": begin}})
    tasks = reader.partitions()
    cut(cluster)
    if fails:
        with pytest.raises(DataLost, match=f"t-0: offsets {max(begin, 2)} to 3 cannot be read any more: an unclean election removed them"):
            rows(reader, tasks)
    else:
        assert rows(reader, tasks) == left
