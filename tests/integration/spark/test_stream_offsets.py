"""Streaming reads without Spark around them: offsets, limits, replays, and logs that change under a running query."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from tests.integration.spark.reading import LONG_AGO_MS, ROLLING, append, begun, latest, micro_batch, recreated, rows, stream, trimmed

import replog
from replog.errors import Code, UnknownTopicOrPartition, UsageError
from replog.model import TopicPartition
from replog.spark.losses import DataLost
from replog.spark.positions import EpochEndOp, Held, Lookup

T = {"subscribe": "t", "startingOffsets": "earliest"}


def values(found: list[tuple[int, int, bytes | None]]) -> list[str]:
    return [value.decode() for _, _, value in found if value is not None]


def test_each_micro_batch_goes_on_where_the_one_before_ended(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t", partitions=2)
    append(cluster, ["a", "b"])
    reader = stream(servers, **T)
    start = begun(reader)
    assert start == {"t": {"0": 0, "1": 0}}
    end = latest(reader, start)
    assert end == {"t": {"0": 2, "1": 0}}
    assert reader.reportLatestOffset() == end
    assert values(micro_batch(reader, start, end)) == ["a", "b"]
    assert latest(reader, end) == end
    assert reader.partitions(end, end) == []
    append(cluster, ["c"], partition=1)
    following = latest(reader, end)
    assert micro_batch(reader, end, following) == [(1, 0, b"c")]
    assert micro_batch(stream(servers, **T), start, end) == [(0, 0, b"a"), (0, 1, b"b")]  # a replay after a restart asks nothing else


LATEST = [{}, {"startingOffsets": {"t": {"0": -1}}}, {"startingTimestamp": 9_000, "startingOffsetsByTimestampStrategy": "latest"}]
EARLIEST = [{"startingOffsets": "earliest"}, {"startingOffsets": {"t": {"0": -2}}}, {"startingTimestamp": 500}]


@pytest.mark.parametrize("options", LATEST)
def test_a_stream_from_the_latest_begins_with_an_empty_micro_batch(cluster: replog.Cluster, servers: str, options: dict[str, Any]) -> None:
    """Otherwise what comes between two looks at "latest" could be skipped by a replay of the first one."""
    cluster.create_topic("t")
    append(cluster, ["before"], timestamp_ms=1_000)
    reader = stream(servers, subscribe="t", **options)
    start = reader.initialOffset()
    assert start == {"t": {"0": 1}}
    append(cluster, ["meanwhile"], timestamp_ms=2_000)
    assert reader.initialOffset() == start
    assert latest(reader, start) == start
    assert values(micro_batch(reader, start, latest(reader, start))) == ["meanwhile"]


@pytest.mark.parametrize("options", EARLIEST)
def test_whatever_retention_takes_before_a_first_micro_batch_is_replayed_the_next_one_is_cut_as_it_was(
    cluster: replog.Cluster, servers: str, options: dict[str, Any]
) -> None:
    """Spark asks again where a query begins when it replays its first micro-batch: the offset log has ends only. A writer tells slices
    by their numbers, so it would take what comes then under the number of an earlier one for done."""
    cluster.create_topic("t", **ROLLING)
    append(cluster, [f"old{n}" for n in range(4)], timestamp_ms=LONG_AGO_MS)
    append(cluster, [f"new{n}" for n in range(4)])
    how = {"subscribe": "t", "failOnDataLoss": False, "maxRecordsPerPartition": 4, **options}
    reader = stream(servers, **how)
    first = latest(reader, reader.initialOffset())
    second = latest(reader, first)
    before = [values(rows(reader, [task])) for task in reader.partitions(first, second)]
    assert before == [[f"{age}{n}" for n in range(4)] for age in ("old", "new")]
    assert trimmed(cluster) == 4
    again = stream(servers, **how)
    start = again.initialOffset()
    assert start == {"t": {"0": 4}}, "somewhere else than it was"
    assert again.partitions(start, first) == [], "the first micro-batch, which holds nothing"
    assert [values(rows(again, [task])) for task in again.partitions(first, second)] == [[], before[1]]
    assert latest(again, second) == second


def test_a_replay_of_an_empty_first_micro_batch_is_followed_by_one_that_reads(cluster: replog.Cluster, servers: str) -> None:
    """Not by another empty one: a run that ends with what is there would end at once."""
    cluster.create_topic("t")
    append(cluster, ["a"])
    first = begun(stream(servers, **T))
    reader = stream(servers, **T)
    assert reader.partitions(reader.initialOffset(), first) == []
    reader.prepareForTriggerAvailableNow()
    assert latest(reader, first) == {"t": {"0": 1}}


@pytest.mark.parametrize("options", [*LATEST, {"startingOffsets": "latest", "subscribe": None, "subscribePattern": "t.*"}])
def test_what_comes_before_an_empty_first_micro_batch_is_replayed_is_no_loss(
    cluster: replog.Cluster, servers: str, options: dict[str, Any]
) -> None:
    """Its sink has failed, or the driver has. Spark asks again where the query begins: later than where the micro-batch ends."""
    cluster.create_topic("t")
    append(cluster, ["before"], timestamp_ms=1_000)
    how = {name: value for name, value in {"subscribe": "t", **options}.items() if value is not None}
    first = latest(reader := stream(servers, **how), reader.initialOffset())
    append(cluster, ["a", "b"], timestamp_ms=2_000)
    if "subscribePattern" in how:
        cluster.add_partitions("t", 2)
    again = stream(servers, **how)
    start = again.initialOffset()
    assert (first, start["t"]["0"]) == ({"t": {"0": 1}}, 3)
    assert again.partitions(start, first) == []
    assert values(micro_batch(again, first, latest(again, first))) == ["a", "b"]


def test_what_retention_takes_before_an_empty_first_micro_batch_is_replayed_is_missed(cluster: replog.Cluster, servers: str) -> None:
    """By the micro-batch that was to read it."""
    cluster.create_topic("t", **ROLLING)
    append(cluster, ["old"], timestamp_ms=LONG_AGO_MS)
    append(cluster, ["new"])
    first = begun(stream(servers, **T))
    assert trimmed(cluster) == 1
    again = stream(servers, **T)
    assert again.partitions(again.initialOffset(), first) == []
    with pytest.raises(DataLost, match="t-0: offsets 0 to 0 cannot be read any more: the partition begins at offset 1 by now"):
        again.partitions(first, latest(again, first))


def test_a_loss_right_behind_an_empty_first_micro_batch(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    append(cluster, ["old"])
    reader = stream(servers, subscribe="t")
    start = begun(reader)
    recreated(cluster)
    back = latest(reader, start)
    assert (start, back) == ({"t": {"0": 1}}, {"t": {"0": 0}})
    for again in (reader, stream(servers, subscribe="t")):
        with pytest.raises(DataLost, match=r"t-0: what was read up to offset 1 is not what|goes back from offset 1 to offset 0; "):
            again.partitions(start, back)


def test_given_offsets_that_there_are_not_are_missed_again_by_a_query_that_is_started_again(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    append(cluster, ["a", "b"])
    how = {"subscribe": "t", "startingOffsets": {"t": {"0": 5}}}
    back = latest(reader := stream(servers, **how), reader.initialOffset())
    for again in (reader, stream(servers, **how)):
        with pytest.raises(DataLost, match="t-0: offsets 2 to 4 cannot be read any more"):
            again.partitions(again.initialOffset(), back)


def test_a_task_is_told_how_much_its_planner_knew_of_the_cluster(cluster: replog.Cluster, servers: str) -> None:
    """Partitions that are added meanwhile are not known to every broker yet, but to the one that has told the planner."""
    cluster.create_topic("t")
    append(cluster, ["a"])
    reader = stream(servers, **T)
    start = begun(reader)
    (before,) = reader.partitions(start, latest(reader, start))
    cluster.add_partitions("t", 2)
    (after,) = reader.partitions(start, latest(reader, start))
    assert (-1, -1) < before.value.known_at < after.value.known_at


def test_a_stream_from_given_offsets_begins_at_once(cluster: replog.Cluster, servers: str) -> None:
    """They are the same however often Spark asks; a run that has one micro-batch only reads what there is."""
    cluster.create_topic("t")
    append(cluster, ["a", "b"])
    reader = stream(servers, subscribe="t", startingOffsets={"t": {"0": 1}})
    assert latest(reader, reader.initialOffset()) == {"t": {"0": 2}}


def test_limits_are_shared_in_proportion_to_what_is_behind(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t", partitions=3)
    append(cluster, [str(n) for n in range(60)])
    append(cluster, [str(n) for n in range(20)], partition=1)
    reader = stream(servers, maxOffsetsPerTrigger=8, **T)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(8)
    start = begun(reader)
    end = latest(reader, start, limit)
    assert end == {"t": {"0": 6, "1": 2, "2": 0}}
    assert latest(reader, end, ReadAllAvailable()) == {"t": {"0": 60, "1": 20, "2": 0}}
    assert reader.reportLatestOffset() == {"t": {"0": 60, "1": 20, "2": 0}}


def test_bytes_are_limited_by_how_large_records_are(cluster: replog.Cluster, servers: str) -> None:
    """One record to a batch, with its header of 92 bytes: some 120 bytes each in one partition, 1,120 in the other."""
    cluster.create_topic("t", partitions=2)
    for n in range(20):
        append(cluster, [f"{n:09}"])
        cluster.append("t", 1, [random.Random(n).randbytes(1_000)])
    reader = stream(servers, maxBytesPerTrigger=5_000, **T)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(5_000)
    start = begun(reader)
    assert latest(reader, start, limit) == {"t": {"0": 4, "1": 4}}
    assert latest(reader, start, ReadMaxBytes(1)) == {"t": {"0": 1, "1": 1}}
    assert latest(reader, start, ReadMaxBytes(50_000)) == {"t": {"0": 20, "1": 20}}
    reader = stream(servers, maxBytesPerTrigger=5_000, maxOffsetsPerTrigger=6, **T)
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    assert latest(reader, start, ReadMaxRows(6)) == {"t": {"0": 3, "1": 3}}
    assert latest(reader, start, ReadMaxRows(30)) == {"t": {"0": 4, "1": 4}}


def test_available_now_ends_with_what_was_there(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    append(cluster, ["a", "b", "c"])
    reader = stream(servers, **T)
    start = begun(reader)
    reader.prepareForTriggerAvailableNow()
    append(cluster, ["later"])
    cluster.add_partitions("t", 2)
    append(cluster, ["elsewhere"], partition=1)
    first = latest(reader, start, ReadMaxRows(2))
    end = latest(reader, first, ReadMaxRows(2))
    assert (first, end) == ({"t": {"0": 2}}, {"t": {"0": 3}})
    assert latest(reader, end, ReadMaxRows(2)) == end


def test_new_partitions_and_topics_are_read_from_their_beginning(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t1")
    append(cluster, ["a"], topic="t1")
    reader = stream(servers, subscribePattern="t[0-9]+")
    start = latest(reader, reader.initialOffset())
    assert start == {"t1": {"0": 1}}
    cluster.add_partitions("t1", 2)
    cluster.create_topic("t22")
    cluster.create_topic("t22x")
    append(cluster, ["b"], topic="t1", partition=1)
    append(cluster, ["c"], topic="t22")
    append(cluster, ["d"], topic="t22x")
    empty = latest(reader, start)  # where they begin is in the checkpoint before anything of them is read
    assert empty == {"t1": {"0": 1, "1": 0}, "t22": {"0": 0}}
    assert micro_batch(reader, start, empty) == micro_batch(stream(servers, subscribePattern="t[0-9]+"), start, empty) == []
    start, end = empty, latest(reader, empty)
    assert end == {"t1": {"0": 1, "1": 1}, "t22": {"0": 1}}
    assert values(micro_batch(reader, start, end)) == ["b", "c"]
    assert values(micro_batch(stream(servers, subscribePattern="t[0-9]+"), start, end)) == ["b", "c"]


def test_a_topic_that_does_not_exist(servers: str) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 't'; there are no topics yet"):
        stream(servers, **T).initialOffset()


def test_an_edited_checkpoint_is_explained(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    with pytest.raises(UsageError, match="the offset of the stream has 'x' for partition 0 of topic 't'; a whole number is expected"):
        latest(stream(servers, **T), {"t": {"0": "x"}})


# ------------------------------------------------------------------------------------------------------------- losses


def after_some(client: replog.Client, servers: str, fails: bool, count: int = 3) -> tuple[Any, dict[str, Any]]:
    """A reader that has read so many records of topic t, and its offset."""
    append(client, [f"old{n}" for n in range(count)], timestamp_ms=LONG_AGO_MS)
    reader = stream(servers, failOnDataLoss=fails, **T)
    start = begun(reader)
    end = latest(reader, start)
    assert len(micro_batch(reader, start, end)) == count
    return reader, end


def go_on(reader: Any, start: dict[str, Any], batches: int = 3) -> list[str]:
    """The next micro-batches."""
    found: list[str] = []
    for _ in range(batches):
        end = latest(reader, start)
        found += values(micro_batch(reader, start, end))
        start = end
    return found


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("written", [1, 3, 5])
def test_a_recreated_topic_is_noticed_whatever_it_holds(cluster: replog.Cluster, servers: str, fails: bool, written: int) -> None:
    """Also with as many records as the old one had, or more: offsets alone would not tell."""
    cluster.create_topic("t")
    reader, start = after_some(cluster, servers, fails)
    recreated(cluster)
    append(cluster, [f"new{n}" for n in range(written)])
    if fails:
        with pytest.raises(DataLost, match="t-0: what was read up to offset 3 is not what is there now: the topic was deleted and created"):
            micro_batch(reader, start, latest(reader, start))
    else:
        assert go_on(reader, start) == [f"new{n}" for n in range(written)]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_recreated_between_an_end_and_its_plan(cluster: replog.Cluster, servers: str, fails: bool) -> None:
    cluster.create_topic("t")
    reader, start = after_some(cluster, servers, fails)
    append(cluster, ["lost"])
    end = latest(reader, start)
    recreated(cluster)
    append(cluster, [f"new{n}" for n in range(6)])
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 3 to 3 cannot be read any more: the topic was deleted and created again"):
            reader.partitions(start, end)
    else:
        assert micro_batch(reader, start, end) == []
        assert go_on(reader, end) == [f"new{n}" for n in range(6)]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_recreated_while_the_query_was_stopped(cluster: replog.Cluster, servers: str, fails: bool) -> None:
    """A new reader has offsets alone: it notices that there are too many of them, and reads nothing twice."""
    cluster.create_topic("t")
    _, start = after_some(cluster, servers, fails)
    recreated(cluster)
    append(cluster, ["new0"])
    reader = stream(servers, failOnDataLoss=fails, **T)
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 1 to 2 cannot be read any more: the partition ends before offset 1"):
            micro_batch(reader, start, latest(reader, start))
    else:
        end = latest(reader, start)
        assert end == {"t": {"0": 1}}
        assert micro_batch(stream(servers, failOnDataLoss=fails, **T), start, end) == []
        append(cluster, ["new1"])
        assert go_on(reader, end) == ["new1"]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted(cluster: replog.Cluster, servers: str, fails: bool) -> None:
    cluster.create_topic("t")
    reader, start = after_some(cluster, servers, fails)
    cluster.delete_topic("t")
    if fails:
        with pytest.raises(DataLost, match="t-0: what was read up to offset 3 is not what is there now: the topic or the partition"):
            micro_batch(reader, start, latest(reader, start))
    else:
        end = latest(reader, start)
        assert end == {}
        assert micro_batch(reader, start, end) == []
        cluster.create_topic("t")
        append(cluster, ["new"])
        assert go_on(reader, end) == ["new"]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_deleted_between_an_end_and_its_plan(cluster: replog.Cluster, servers: str, fails: bool) -> None:
    cluster.create_topic("t")
    reader, start = after_some(cluster, servers, fails)
    append(cluster, ["lost"])
    end = latest(reader, start)
    cluster.delete_topic("t")
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 3 to 3 cannot be read any more: the topic or the partition does not exist"):
            reader.partitions(start, end)
    else:
        assert micro_batch(reader, start, end) == []


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_trimmed_before_it_is_read(cluster: replog.Cluster, servers: str, fails: bool) -> None:
    cluster.create_topic("t", **ROLLING)
    reader, start = after_some(cluster, servers, fails, 2)
    append(cluster, ["lost"], timestamp_ms=LONG_AGO_MS)
    append(cluster, ["kept"])
    assert trimmed(cluster) == 3
    end = latest(reader, start)
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 2 to 2 cannot be read any more: the partition begins at offset 3 by now"):
            reader.partitions(start, end)
    else:
        assert values(micro_batch(reader, start, end)) == ["kept"]


def test_a_replay_is_sliced_as_before_whatever_is_gone(cluster: replog.Cluster, servers: str) -> None:
    """A writer tells the slices of a micro-batch by their numbers."""
    for topic in ("a", "b", "c"):
        cluster.create_topic(topic, **ROLLING)
        append(cluster, [f"{topic}{n}" for n in range(8)], topic=topic, timestamp_ms=LONG_AGO_MS if topic != "c" else None)
    append(cluster, ["b8", "b9"], topic="b")
    how = {"subscribe": "a,b,c", "startingOffsets": "earliest", "failOnDataLoss": False, "maxRecordsPerPartition": 3}
    reader = stream(servers, **how)
    start = begun(reader)
    end = latest(reader, start)
    before = [values(rows(reader, [task])) for task in reader.partitions(start, end)]
    assert trimmed(cluster, "b") == 8
    cluster.delete_topic("a")
    again = stream(servers, **how)
    after = [values(rows(again, [task])) for task in again.partitions(start, end)]
    assert before[3:] == [["b0", "b1"], ["b2", "b3", "b4"], ["b5", "b6"], ["b7", "b8", "b9"], *before[7:]]
    assert after == [[], [], [], [], [], [], ["b8", "b9"], *before[7:]]


def test_what_is_trimmed_after_it_was_read_is_no_loss(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t", **ROLLING)
    reader, start = after_some(cluster, servers, True)
    append(cluster, ["kept"])
    assert trimmed(cluster) == 3
    assert go_on(reader, start) == ["kept"]


def test_a_topic_recreated_before_anything_of_it_was_read(cluster: replog.Cluster, servers: str) -> None:
    """The offset cannot go back: it is said at once."""
    cluster.create_topic("t")
    reader = stream(servers, **T)
    start = begun(reader)
    recreated(cluster)
    with pytest.raises(DataLost, match="t-0: what was read up to offset 0 is not what is there now: the topic was deleted and created"):
        latest(reader, start)


def test_a_topic_that_was_deleted_is_missed_again_by_a_query_that_is_started_again(cluster: replog.Cluster, servers: str) -> None:
    cluster.create_topic("t")
    reader, start = after_some(cluster, servers, True)
    cluster.delete_topic("t")
    end = latest(reader, start)
    assert end == {}
    for again in (reader, stream(servers, **T)):
        with pytest.raises(DataLost, match="t-0: what was read up to offset 3 is not what is there now: the topic or the partition"):
            again.partitions(start, end)


def test_a_leader_that_does_not_know_yet_how_much_is_committed_has_lost_nothing(
    cluster: replog.Cluster, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that is started again remembers offsets alone: they do not go back, and nothing is read twice."""
    cluster.create_topic("t")
    append(cluster, [str(n) for n in range(10)])
    whole = Lookup._held

    def stale(self: Lookup, *asked: Any) -> dict[TopicPartition, Held]:
        return {place: has._replace(latest=6) for place, has in whole(self, *asked).items()}

    with monkeypatch.context() as patched:
        patched.setattr(Lookup, "_held", stale)
        for fails in (False, True):
            reader = stream(servers, failOnDataLoss=fails, **T)
            start = {"t": {"0": 10}}
            assert latest(reader, start) == start
            assert latest(reader, {"t": {"0": 8}}) == {"t": {"0": 8}}, "8 and 9 may yet be others"
            assert values(micro_batch(reader, {"t": {"0": 4}}, start)) == [str(n) for n in range(4, 10)], "tasks wait for it"
        patched.setattr(EpochEndOp, "answered", lambda self, core, answer, now_ms: Code.NOT_LEADER_OR_FOLLOWER)
        silent = stream(servers, **T, **{"replog.fetch.timeout.ms": 500})
        assert latest(silent, start) == start, "nobody has said that anything is gone"
    assert latest(reader, start) == start
