"""A query is started again, and the broker that its new client asks first is late: it has not heard of the newest topic yet, or not that
it leads no longer."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.errors import Code, LeaderNotAvailable, TimedOut
from replog.messages import (
    Admin,
    AdminAnswer,
    ClusterView,
    Epochs,
    EpochsResult,
    ListedOffset,
    ListedOffsets,
    ListOffsets,
    Metadata,
    OffsetsForLeaderEpoch,
)
from replog.spark.batch_reading import BatchReading
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


def test_a_run_that_ends_with_what_is_there_reads_what_a_broker_has_not_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks again once it has ended."""
    cluster, before = world()
    start = {"t": {"0": 0}, "u": {"0": 0}}
    again = reader(cluster, monkeypatch, [before])
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(start, again.getDefaultReadLimit()) == END
    (task,) = again.partitions(start, END)
    assert (task.value.place.topic, task.value.start, task.value.stop) == ("u", 0, 3)


def test_a_run_that_ends_with_what_is_there_fails_while_a_broker_has_not_heard_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, before = world()
    again = reader(cluster, monkeypatch, [before] * 3)
    again.prepareForTriggerAvailableNow()
    with pytest.raises(LeaderNotAvailable, match="the broker that was asked does not know u-0, which is there, or is being deleted"):
        again.latestOffset({"t": {"0": 0}, "u": {"0": 0}}, again.getDefaultReadLimit())


# --------------------------------------------------------------------------------------------------------------- batches


class Asked:
    """A batch whose client is new. The first answers show it the cluster of before; `says` is what the controller answers instead."""

    def __init__(self, patch: pytest.MonkeyPatch, cluster: FakeCluster, late: list[ClusterView], **options: Any) -> None:
        self.verbs: list[str] = []
        self.says: AdminAnswer | None = None
        self._late = late
        client = Client(FakeDriver(cluster, seed=1))
        cluster.override = self._answer
        patch.setattr(Connection, "client", lambda _: client)
        given = {"replog.bootstrap.servers": "nobody:1", **options}
        self._batch = BatchReading(ReadOptions.parse(given, streaming=False), read_schema(headers=False))

    def _answer(self, message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Admin):
            self.verbs.append(message.verb)
            return None if self.says is None else [evolve(self.says, request=message.request)]
        return [evolve(self._late.pop(), request=message.request)] if isinstance(message, Metadata) and self._late else None

    def read(self) -> list[tuple[str, int, int]]:
        """Topic, partition and end of each task."""
        return [(one.value.place.topic, one.value.place.partition, one.value.stop) for one in self._batch.partitions()]


@pytest.mark.parametrize("options", [{"subscribePattern": "t|u"}, {"subscribe": "t,u"}])
@pytest.mark.parametrize("late", [1, 4])
def test_a_batch_reads_topics_that_a_broker_has_not_heard_of(monkeypatch: pytest.MonkeyPatch, late: int, options: dict[str, str]) -> None:
    """It looks only once, so that nobody would ever read what is left out."""
    cluster, before = world()
    batch = Asked(monkeypatch, cluster, [before] * late, **options)
    assert batch.read() == [("u", 0, 3)]
    assert batch.verbs == ["find_view"]


def test_a_batch_reads_partitions_that_a_broker_has_not_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _, client = make({"t": 1})
    before = cluster.view()
    cluster.add_partition("t", 1)
    client.append("t", 1, ["a"])
    assert Asked(monkeypatch, cluster, [before], subscribe="t").read() == [("t", 1, 1)]


def test_a_batch_of_partitions_that_are_named_asks_who_leads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _ = world()
    batch = Asked(monkeypatch, cluster, [], assign='{"u": [0]}')
    assert batch.read() == [("u", 0, 3)]
    assert batch.verbs == ["find_topic"]


def test_a_batch_fails_while_nobody_has_heard_of_what_the_controller_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _ = world()
    batch = Asked(monkeypatch, cluster, [], subscribePattern="t|u")
    batch.says = AdminAnswer(0, 0, result={"controller_epoch": cluster.controller_epoch, "version": cluster.version + 1})
    with pytest.raises(TimedOut, match="the question for a view of the cluster as new as the controller's"):
        batch.read()


@pytest.mark.parametrize("code", [Code.INVALID_REQUEST, Code.CLUSTER_AUTHORIZATION_FAILED])
def test_where_the_question_is_not_known_a_batch_is_as_it_was(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """The controller is of an earlier version, or the broker that is to pass it on."""
    cluster, before = world()
    batch = Asked(monkeypatch, cluster, [before] * 3, subscribePattern="t|u")
    batch.says = AdminAnswer(0, code, "unknown verb 'find_view'")
    assert batch.read() == []


@pytest.mark.parametrize("code", [Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT])
def test_a_batch_without_an_answer_of_the_controller_fails(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    cluster, _ = world()
    batch = Asked(monkeypatch, cluster, [], subscribePattern="t|u")
    batch.says = AdminAnswer(0, code, "not now")
    with pytest.raises(TimedOut, match="find_view"):
        batch.read()


# ------------------------------------------------------------------------------------------------------- deposed leaders

DONE = {"t": {"0": 10}}
"""Up to here the query has read: all of it committed, the last four records under a leader that its new client does not hear of."""
ONCE = {"fetchOffset.numRetries": 0}


class Deposed:
    """Broker 1 led epoch 0 up to offset 6 and still believes that it does; broker 2 leads epoch 1. Whoever asks who leads is told of 1."""

    def __init__(self, patch: pytest.MonkeyPatch, *, log_end: int = 6) -> None:
        self.cluster, _, self.writer = make({"t": 1})
        self.append(6)
        self._before = self.cluster.view()
        self._identity = self.cluster.partition("t").identity
        self._log_end = log_end
        self.cluster.move("t", 0, 2)
        self.append(4)
        self.says: dict[str, Any] | None = None
        """What the controller says of the topic instead of what is so; empty: nothing at all."""
        self._patch = patch

    def append(self, count: int) -> None:
        for n in range(count):
            self.writer.append("t", 0, [str(n)])

    def _answer(self, message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Metadata):
            return [evolve(self._before, request=message.request)]
        if isinstance(message, Admin) and self.says is not None:
            return [AdminAnswer(message.request, 0, result=self.says)] if self.says else []
        if broker != 1 or not isinstance(message, ListOffsets | OffsetsForLeaderEpoch) or message.entries[0].partition != self._identity:
            return None
        if isinstance(message, ListOffsets):
            return [ListedOffsets(message.request, [ListedOffset(self._identity, 0, 6, -1, 0, self._log_end, 0)])]
        return [Epochs(message.request, [EpochsResult(self._identity, 0, 0, self._log_end)])]

    def options(self, *, streaming: bool = True, **options: Any) -> ReadOptions:
        """Of a reader whose client is new."""
        client = Client(FakeDriver(self.cluster, seed=1))
        self.cluster.override = self._answer
        self._patch.setattr(Connection, "client", lambda _: client)
        which = {} if "assign" in options else {"subscribe": "t"}
        given = {"replog.bootstrap.servers": "nobody:1", **which, "startingOffsets": "earliest", **options}
        return ReadOptions.parse(given, streaming=streaming)

    def reader(self, **options: Any) -> StreamReading:
        return StreamReading(self.options(**options), read_schema(headers=False))


def latest(stream: StreamReading, begin: dict[str, Any] = DONE) -> dict[str, Any]:
    return stream.latestOffset(begin, stream.getDefaultReadLimit())


@pytest.fixture
def deposed(monkeypatch: pytest.MonkeyPatch) -> Deposed:
    return Deposed(monkeypatch)


@pytest.mark.parametrize("fails", [True, False])
def test_a_deposed_leader_does_not_take_an_offset_back(deposed: Deposed, fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The controller knows who leads: that one is asked, and has it all."""
    stream = deposed.reader(failOnDataLoss=fails)
    deposed.append(2)
    assert latest(stream) == stream.reportLatestOffset() == {"t": {"0": 12}}
    (task,) = stream.partitions(DONE, {"t": {"0": 12}})
    assert (task.value.start, task.value.stop, task.value.leader_epoch) == (10, 12, 1)
    assert (stream._noted, caplog.records) == ({}, [])


@pytest.mark.parametrize("fails", [True, False])
def test_where_only_a_deposed_leader_has_answered_an_offset_stays(deposed: Deposed, fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    deposed.cluster.create("u", 1)
    deposed._before = evolve(deposed.cluster.view(), topics=[*deposed._before.topics, deposed.cluster.view().topics[1]])
    stream = deposed.reader(failOnDataLoss=fails, subscribe="t,u", **ONCE)
    done = {**DONE, "u": {"0": 0}}
    deposed.writer.append("u", 0, ["a"])
    assert latest(stream, done) == stream.reportLatestOffset() == {**DONE, "u": {"0": 1}}
    assert (stream._noted, caplog.records) == ({}, [])
    deposed.append(2)
    assert latest(stream, done) == {"t": {"0": 12}, "u": {"0": 1}}


@pytest.mark.parametrize("log_end", [6, 10])
def test_a_plan_is_not_cut_to_what_a_deposed_leader_has(monkeypatch: pytest.MonkeyPatch, log_end: int) -> None:
    """Nor is it made for its log, whose end nobody else may have."""
    deposed = Deposed(monkeypatch, log_end=log_end)
    for fails in (True, False):
        (task,) = deposed.reader(failOnDataLoss=fails).partitions({"t": {"0": 4}}, DONE)
        assert (task.value.start, task.value.stop, task.value.leader_epoch) == (4, 10, 1)
    with pytest.raises(LeaderNotAvailable, match="t-0 has another leader than the broker that answered, which was replaced and holds less"):
        deposed.reader(failOnDataLoss=False, **ONCE).partitions({"t": {"0": 4}}, DONE)


def test_a_run_that_ends_with_what_is_there_asks_the_leader_of_now(deposed: Deposed) -> None:
    deposed.append(2)
    stream = deposed.reader()
    stream.prepareForTriggerAvailableNow()
    assert latest(stream) == {"t": {"0": 12}}
    deposed.append(1)
    assert latest(stream) == {"t": {"0": 12}}
    stream = deposed.reader(**ONCE)
    with pytest.raises(LeaderNotAvailable, match="t-0 has another leader"):
        stream.prepareForTriggerAvailableNow()


def test_a_run_that_is_behind_ends_with_what_the_leader_of_now_has(deposed: Deposed) -> None:
    stream = deposed.reader()
    stream.prepareForTriggerAvailableNow()
    assert latest(stream, {"t": {"0": 4}}) == {"t": {"0": 10}}


@pytest.mark.parametrize("bounds", [{}, {"endingOffsets": "latest"}, {"startingOffsets": '{"t": {"0": 5}}'}])
def test_a_batch_of_named_partitions_ends_with_what_the_leader_of_now_has(deposed: Deposed, bounds: dict[str, str]) -> None:
    batch = BatchReading(deposed.options(streaming=False, assign='{"t": [0]}', **bounds), read_schema(headers=False))
    (task,) = batch.partitions()
    assert task.value.stop == 10


@pytest.mark.parametrize("bounds", [{"startingOffsets": '{"t": {"0": 8}}'}, {"endingOffsets": '{"t": {"0": 10}}'}])
def test_a_batch_is_not_cut_to_what_a_deposed_leader_has(deposed: Deposed, bounds: dict[str, str]) -> None:
    bounds = {**bounds, "assign": '{"t": [0]}'}
    batch = BatchReading(deposed.options(streaming=False, **bounds), read_schema(headers=False))
    (task,) = batch.partitions()
    assert (task.value.start, task.value.stop) == (8 if "startingOffsets" in bounds else 0, 10)
    with pytest.raises(LeaderNotAvailable, match="t-0 has another leader"):
        BatchReading(deposed.options(streaming=False, **bounds, **ONCE), read_schema(headers=False)).partitions()


def test_an_offset_goes_back_where_the_controller_agrees_with_the_leader(deposed: Deposed) -> None:
    del deposed.cluster.partition("t").log[8:]
    stream = deposed.reader()
    assert latest(stream) == {"t": {"0": 8}}
    with pytest.raises(DataLost, match="t-0: offsets 8 to 9 cannot be read any more: the partition ends before offset 8"):
        stream.partitions(DONE, {"t": {"0": 8}})


def test_a_leader_of_a_topic_that_the_controller_does_not_have_any_more_is_not_believed(deposed: Deposed) -> None:
    other = {"topic_id": "09" * 16, "partitions": 1, "next_creation": 0}
    for leaders in ([], [[0, 0, 0, 1]]):
        deposed.says = {**other, "leaders": leaders}
        assert latest(deposed.reader()) == DONE


def test_without_an_answer_of_the_controller_nothing_goes_back(deposed: Deposed) -> None:
    deposed.says = {}
    with pytest.raises(TimedOut, match="find_topic"):
        latest(deposed.reader())


def test_a_controller_that_does_not_say_who_leads_leaves_a_leader_believed(deposed: Deposed) -> None:
    """It is of an earlier version."""
    deposed.says = {"topic_id": deposed._identity.topic_id.hex(), "partitions": 1, "next_creation": 0}
    assert latest(deposed.reader()) == {"t": {"0": 6}}
