"""Brokers make topics that are sought (`auto_create_topics`): a read seeks none, neither one that is misspelt nor one that was deleted."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.errors import Code, PolicyViolation, TimedOut, UnknownTopicOrPartition
from replog.messages import ClusterView, Metadata
from replog.model import TopicPartition
from replog.spark.batch_reading import BatchReading
from replog.spark.columns import read_schema
from replog.spark.connections import Connection
from replog.spark.losses import DataLost
from replog.spark.options import ReadOptions
from replog.spark.positions import Lookup
from replog.spark.stream_reading import StreamReading

DONE = {"t": {"0": 3, "1": 0}, "u": {"0": 1}}
"""What was read of topics t, which has two partitions, and u."""
AFTER = {"u": {"0": 1}}


class World:
    """Brokers that make what is sought, with one partition. `sees` may change the view that they show."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.cluster, _, writer = make({"t": 2, "u": 1})
        for topic, count in (("t", 3), ("u", 1)):
            for n in range(count):
                writer.append(topic, 0, [str(n)])
        self.client = Client(FakeDriver(self.cluster, seed=1))
        self.refuses = False
        self.cluster.override = self._answer
        patch.setattr(Connection, "client", lambda _: self.client)

    def _answer(self, message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Metadata):
            return None
        missing = [name for name in message.sought if name not in self.cluster.topics]
        if self.refuses and missing:
            said = [(name, int(Code.POLICY_VIOLATION), "there are enough topics") for name in missing]
            return [evolve(self.cluster.view(message.request), missing=said)]
        for name in missing:
            self.cluster.create(name)
        return None

    def given(self, *, streaming: bool, **options: Any) -> ReadOptions:
        which = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "t,u"}
        given = {"replog.bootstrap.servers": "nobody:1", **which, **options}
        return ReadOptions.parse(given, streaming=streaming)

    def batch(self, **options: Any) -> BatchReading:
        return BatchReading(self.given(streaming=False, **options), read_schema(headers=False))

    def stream(self, **options: Any) -> StreamReading:
        return StreamReading(self.given(streaming=True, **{"startingOffsets": "earliest", **options}), read_schema(headers=False))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def latest(stream: StreamReading, begin: dict[str, Any]) -> dict[str, Any]:
    return stream.latestOffset(begin, stream.getDefaultReadLimit())


def test_these_brokers_make_what_is_sought(world: World) -> None:
    assert world.client.partitions_for("sought") == [0]


@pytest.mark.parametrize("options", [{"subscribe": "t,tt"}, {"assign": '{"tt": [0]}'}, {"assign": '{"t": [0], "tt": [0]}'}])
def test_a_name_that_is_misspelt_is_an_error(world: World, options: dict[str, str]) -> None:
    for read in (world.batch(**options).partitions, world.stream(**options).initialOffset):
        with pytest.raises(UnknownTopicOrPartition, match="unknown topic 'tt'; known topics are t, u"):
            read()
    assert sorted(world.cluster.topics) == ["t", "u"]


WHICH = [{}, {"subscribePattern": ".*"}, {"assign": '{"t": [0, 1], "u": [0]}'}]


@pytest.mark.parametrize("options", WHICH)
@pytest.mark.parametrize("fails", [True, False])
def test_a_running_stream_does_not_bring_a_topic_back(
    world: World, options: dict[str, str], fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    running = world.stream(failOnDataLoss=fails, **options)
    assert latest(running, DONE) == DONE
    world.cluster.delete("t")
    end = latest(running, DONE)
    assert end == AFTER
    if fails:
        with pytest.raises(DataLost, match="t-0: what was read up to offset 3 is not what is there now: the topic or the partition does"):
            running.partitions(DONE, end)
    else:
        assert running.partitions(DONE, end) == []
        assert latest(running, end) == end
    assert [text[:3] for text in caplog.messages] == ([] if fails else ["t-0", "t-1"])
    assert list(world.cluster.topics) == ["u"]


@pytest.mark.parametrize("options", WHICH)
def test_nor_does_a_run_that_ends_with_what_is_there(world: World, options: dict[str, str]) -> None:
    world.cluster.delete("t")
    run = world.stream(failOnDataLoss=False, **options)
    run.prepareForTriggerAvailableNow()
    assert latest(run, DONE) == AFTER
    assert list(world.cluster.topics) == ["u"]


@pytest.mark.parametrize("fails", [True, False])
def test_nor_does_a_micro_batch_that_is_planned_again(world: World, fails: bool) -> None:
    """Its offsets say what it reads: nobody looks first which topics there are."""
    world.cluster.delete("t")
    again = world.stream(failOnDataLoss=fails)
    start = {"t": {"0": 1, "1": 0}, "u": {"0": 0}}
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 1 to 2 cannot be read any more: the topic or the partition does not exist"):
            again.partitions(start, DONE)
    else:
        tasks = [task.value.place.topic for task in again.partitions(start, DONE) if task.value is not None]
        assert tasks == ["u"]
    assert list(world.cluster.topics) == ["u"]


def test_nor_does_a_read_whose_topic_is_deleted_while_it_is_planned(world: World) -> None:
    """Where times are asked about last of all."""
    world.cluster.override = None
    batch = world.batch(subscribe="t", endingTimestamp=2**40)
    listed = 0

    def delete_then(message: Any, broker: int) -> list[Any] | None:
        nonlocal listed
        listed += type(message).__name__ == "ListOffsets"
        if listed == 3 and "t" in world.cluster.topics:
            world.cluster.delete("t")
        return world._answer(message, broker)

    world.cluster.override = delete_then
    with pytest.raises(UnknownTopicOrPartition):
        batch.partitions()
    assert list(world.cluster.topics) == ["u"]


def test_what_a_writer_was_told_who_sought_it_is_not_what_a_read_is_told(world: World) -> None:
    """They share a client. It is gone, and that it cannot be made does not concern the reader."""
    world.refuses = True
    running = world.stream(failOnDataLoss=False)
    assert latest(running, DONE) == DONE
    world.cluster.delete("t")
    assert world.client.topics() == ["u"]
    with pytest.raises(PolicyViolation, match="there are enough topics"):
        world.client.append("t", 0, ["x"])
    assert running.partitions({"t": {"0": 1, "1": 0}, **AFTER}, DONE)[0].value is None
    assert latest(running, DONE) == AFTER


# ------------------------------------------------------------------------------------- topics that are there in part only


def shown(cluster: FakeCluster, views: list[ClusterView]) -> None:
    """Brokers show these one after the other, the last one from then on."""

    def answer(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Metadata):
            return None
        assert message.sought == []
        return [evolve(views.pop(0) if len(views) > 1 else views[0], request=message.request)]

    cluster.override = answer


def partly(view: ClusterView, *, version: int, hidden: bool) -> ClusterView:
    """Topic t is there, and nothing of it can be seen."""
    others = [topic for topic in view.topics if topic.topic != "t"]
    empty = [evolve(topic, partitions=()) for topic in view.topics if topic.topic == "t"]
    return evolve(view, version=version, topics=others + ([] if hidden else empty), hidden=["t"] if hidden else [])


@pytest.mark.parametrize("hidden", [True, False])
def test_a_topic_that_nobody_can_show_yet_is_waited_for(world: World, hidden: bool) -> None:
    """The controller cannot read it, or its partitions are on their way."""
    whole = evolve(world.cluster.view(), version=9)
    shown(world.cluster, [partly(whole, version=8, hidden=hidden)] * 3 + [whole])
    assert world.stream().initialOffset() == {"t": {"0": 0, "1": 0}, "u": {"0": 0}}


@pytest.mark.parametrize("hidden", [True, False])
def test_until_time_runs_out(world: World, hidden: bool) -> None:
    shown(world.cluster, [partly(world.cluster.view(), version=8, hidden=hidden)])
    for read in (world.stream().initialOffset, lambda: latest(world.stream(), DONE)):
        with pytest.raises(TimedOut, match=r"waited 30 s for an answer of .* to the question for the partitions of t, u"):
            read()


def test_an_answer_to_an_earlier_question_does_not_say_that_a_partition_is_gone(world: World) -> None:
    whole = evolve(world.cluster.view(), version=9)
    before = evolve(whole, version=8, topics=[topic for topic in whole.topics if topic.topic != "t"])
    shown(world.cluster, [before, whole])
    world.client._core.refresh(world.client._driver.now_ms())
    held = Lookup(world.given(streaming=True)).held([TopicPartition("t", 0)])
    assert [has.latest for has in held.values()] == [3]


def test_an_offset_of_a_hidden_topic_is_waited_for(world: World) -> None:
    """A micro-batch that is planned again does not take it to be gone."""
    whole = evolve(world.cluster.view(), version=9)
    shown(world.cluster, [partly(whole, version=8, hidden=True)] * 3 + [whole])
    (task,) = world.stream().partitions({"t": {"0": 1, "1": 0}, **AFTER}, DONE)
    assert (task.value.place.topic, task.value.start, task.value.stop) == ("t", 1, 3)
