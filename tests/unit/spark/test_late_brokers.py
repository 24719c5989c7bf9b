"""A query is started again, and the broker that its new client asks first has not heard of the newest topic yet."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.errors import LeaderNotAvailable
from replog.messages import ClusterView, Metadata
from replog.spark.columns import read_schema
from replog.spark.connections import Connection
from replog.spark.losses import DataLost
from replog.spark.options import ReadOptions
from replog.spark.stream_reading import StreamReading

END = {"t": {"0": 0}, "u": {"0": 3}}


def reader(cluster: FakeCluster, patch: pytest.MonkeyPatch, late: list[ClusterView], **options: Any) -> StreamReading:
    """One whose client is new, and is told of the cluster of before as often as `late` has it."""

    def answer(message: Any, broker: int) -> list[Any] | None:
        return [evolve(late.pop(), request=message.request)] if isinstance(message, Metadata) and late else None

    cluster.override = answer
    client = Client(FakeDriver(cluster, seed=1))
    patch.setattr(Connection, "client", lambda self: client)
    which = {} if {"subscribe", "assign"} & options.keys() else {"subscribePattern": "t|u"}
    given = {"replog.bootstrap.servers": "nobody:1", **which, "startingOffsets": "earliest", **options}
    return StreamReading(ReadOptions.parse(given, streaming=True), read_schema(headers=False))


def world() -> tuple[FakeCluster, ClusterView]:
    """Three records in topic u, and the cluster before there was one."""
    cluster, _, client = make({"t": 1})
    before = cluster.view()
    cluster.create("u")
    for n in range(3):
        client.append("u", 0, [str(n)])
    return cluster, before


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_a_broker_has_not_heard_of_is_not_gone(
    monkeypatch: pytest.MonkeyPatch, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither is it lost, nor is it read once more from its beginning."""
    cluster, before = world()
    again = reader(cluster, monkeypatch, [before], failOnDataLoss=fails)
    for _ in range(2):
        assert again.latestOffset(END, again.getDefaultReadLimit()) == END
    assert again._noted == {}
    assert caplog.records == []


def test_a_plan_that_meets_such_a_broker_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, before = world()
    start = {"t": {"0": 0}, "u": {"0": 0}}
    again = reader(cluster, monkeypatch, [before] * 3, failOnDataLoss=False)
    with pytest.raises(LeaderNotAvailable, match="the broker that was asked does not know u-0, which is there, or is being deleted"):
        again.partitions(start, END)
    (task,) = reader(cluster, monkeypatch, [], failOnDataLoss=False).partitions(start, END)
    assert (task.value.start, task.value.stop) == (0, 3)


def test_what_the_controller_does_not_have_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _ = world()
    cluster.delete("u")
    again = reader(cluster, monkeypatch, [])
    end = again.latestOffset(END, again.getDefaultReadLimit())
    assert end == {"t": {"0": 0}}
    with pytest.raises(DataLost, match="u-0: what was read up to offset 3 is not what is there now: the topic or the partition"):
        again.partitions(END, end)


NARROWER = [{"subscribePattern": "t"}, {"subscribe": "t"}, {"assign": '{"t": [0]}'}]


@pytest.mark.parametrize("options", NARROWER)
def test_a_partition_that_is_left_out_after_a_restart_is_said_to_be(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    """Before anything is in the checkpoint: named again, it goes on where it was."""
    cluster, _ = world()
    narrow = reader(cluster, monkeypatch, [], **options)
    said = f"u-0: the query has read it up to offset 3, and the option {next(iter(options))} leaves it out now: name it again, and "
    said += "the query goes on there; with the option failOnDataLoss=false the query goes on without it"
    with pytest.raises(DataLost, match=said):
        narrow.latestOffset(END, narrow.getDefaultReadLimit())
    wide = reader(cluster, monkeypatch, [])
    assert wide.latestOffset(END, wide.getDefaultReadLimit()) == END


@pytest.mark.parametrize("options", NARROWER)
def test_a_partition_that_is_left_out_where_that_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """It is new when it is named again. A query that may not lose anything cannot tell by then why it is not in the checkpoint."""
    cluster, _ = world()
    narrow = reader(cluster, monkeypatch, [], **options, failOnDataLoss=False)
    end = narrow.latestOffset(END, narrow.getDefaultReadLimit())
    assert end == {"t": {"0": 0}}
    assert narrow.partitions(END, end) == []
    (told,) = caplog.messages
    assert told.startswith("u-0: the query has read it up to offset 3, and the option")
    assert told.endswith("and begins at its first record when it is named again (failOnDataLoss=false)")
    wide = reader(cluster, monkeypatch, [])
    assert wide.latestOffset(end, wide.getDefaultReadLimit()) == {"t": {"0": 0}, "u": {"0": 0}}
    with pytest.raises(DataLost, match="the partition did not exist any more, or was left out, before the query was started again"):
        wide.partitions(END, end)


@pytest.mark.parametrize("options", NARROWER)
def test_a_micro_batch_that_was_planned_before_is_replayed_whole(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    """Its offsets alone say what it reads, also where a broker has not heard of the topic."""
    cluster, before = world()
    start = {"t": {"0": 0}, "u": {"0": 0}}
    (task,) = reader(cluster, monkeypatch, [], **options).partitions(start, END)
    assert (task.value.place.topic, task.value.start, task.value.stop) == ("u", 0, 3)
    with pytest.raises(LeaderNotAvailable, match="the broker that was asked does not know u-0"):
        reader(cluster, monkeypatch, [before] * 3, **options).partitions(start, END)
