"""A consumer follows, in order, from where it was told; one thread owns it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.client.consumer import Consumer
from replog.errors import Code, OffsetOutOfRange, TimedOut, UnknownTopicId, UnknownTopicOrPartition, UsageError
from replog.messages import Fetch, Fetched, FetchedEntry, ListedOffsets, ListOffsets, Metadata
from replog.records import RecordBatch, encode_records


def test_latest_begins_at_first_use_and_follows() -> None:
    _, _, client = make({"t": 1})
    client.append("t", 0, ["before"])
    with client.consumer("t") as consumer:
        assert consumer.poll() == []
        assert consumer.position("t", 0) == 1
        client.append("t", 0, ["a", "b"])
        assert [r.text() for r in consumer.poll(max_records=1, timeout_s=1)] == ["a"]
        assert consumer.position("t", 0) == 2
        assert [r.text() for r in consumer.poll()] == ["b"]
        assert consumer.poll(timeout_s=2) == []
    with pytest.raises(UsageError, match="this Consumer is closed"):
        consumer.poll()


def test_it_waits_for_records_at_most_as_long_as_told() -> None:
    cluster, driver, client = make({"t": 1})
    consumer = client.consumer("t")
    assert consumer.poll(timeout_s=1) == []
    assert driver.now_ms() >= 2_000
    delivered = driver.delivered
    consumer.close()
    assert driver.delivered == delivered
    assert cluster.counts["Fetch"] < 100_000


def test_every_partition_of_every_topic_or_those_chosen() -> None:
    _, _, client = make({"t": 2, "u": 2})
    for topic in "tu":
        for number in range(2):
            client.append(topic, number, [f"{topic}{number}"])
    everything = client.consumer("t", "u", start="earliest").poll()
    assert sorted(r.text() for r in everything) == ["t0", "t1", "u0", "u1"]
    assert [r.text() for r in client.consumer("t", partitions=[1], start="earliest").poll()] == ["t1"]
    with pytest.raises(UnknownTopicOrPartition, match="no partition 7; it has 0, 1"):
        client.consumer("t", partitions=[7]).poll()
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 'v'"):
        client.consumer("v").poll()


def test_who_names_a_partition_that_is_not_there_yet_finds_it_once_it_is() -> None:
    cluster, _, client = make({"t": 1})
    consumer = client.consumer("t", partitions=[1], start="earliest")
    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartition):
            consumer.poll()
    cluster.add_partition("t", 1)
    Client(FakeDriver(cluster)).append("t", 1, ["here"])
    assert [record.text() for record in consumer.poll(timeout_s=1)] == ["here"]



def test_seek_pause_and_resume() -> None:
    _, driver, client = make({"t": 2})
    for n in range(4):
        client.append("t", 0, [str(n)])
        driver.clock.advance(1_000)
    client.append("t", 1, ["other"])
    consumer = client.consumer("t", start="earliest")
    assert len(consumer.poll()) == 5
    consumer.seek("t", 0, 2)
    assert consumer.position("t", 0) == 2
    consumer.pause("t", 0)
    assert consumer.poll() == []
    consumer.resume("t", 0)
    assert [r.text() for r in consumer.poll()] == ["2", "3"]
    consumer.seek("t", 0, 2)
    assert [r.text() for r in consumer.poll(max_records=1)] == ["2"]
    consumer.pause("t", 0)
    assert consumer.poll() == []
    consumer.resume("t", 0)
    assert [r.text() for r in consumer.poll()] == ["3"]
    consumer.seek_to_beginning()
    assert len(consumer.poll()) == 5
    consumer.seek_to_end()
    assert consumer.poll() == []
    assert consumer.position("t", 0) == 4
    consumer.seek("t", 0, datetime.fromtimestamp(1_700_000_001, UTC))
    assert consumer.position("t", 0) == 1
    consumer.seek("t", 0, datetime.fromtimestamp(1_800_000_000, UTC))
    assert consumer.position("t", 0) == 4
    with pytest.raises(UsageError, match=r"does not read u-0; it reads t-0, t-1"):
        consumer.seek("u", 0, 0)
    consumer.seek("t", 0, 77)
    with pytest.raises(OffsetOutOfRange, match="offset 77 of t-0"):
        consumer.poll()
    consumer.seek("t", 0, 0)
    assert len(consumer.poll()) == 4


def test_iterating_hands_out_one_at_a_time_and_keeps_the_position_exact() -> None:
    _, _, client = make({"t": 1})
    client.append("t", 0, [str(n) for n in range(10)])
    consumer = client.consumer("t", start="earliest")
    for n, record in enumerate(islice(consumer, 7)):
        assert record.offset == n
        assert consumer.position("t", 0) == n + 1
    assert [r.offset for r in consumer.poll()] == [7, 8, 9]


def test_added_partitions_are_read_from_their_beginning() -> None:
    cluster, _, client = make({"t": 1})
    consumer = client.consumer("t")
    assert consumer.poll() == []
    cluster.add_partition("t", 1)
    client.topics()
    client.append("t", 1, ["first"])
    assert [r.text() for r in consumer.poll(timeout_s=5)] == ["first"]


def hide(cluster: FakeCluster, topic: str) -> None:
    """Whoever asks for this topic is told that it is being made, until `override` is taken away."""

    def without(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Metadata):
            return None
        view = cluster.view(message.request)
        there = [one for one in view.topics if one.topic != topic]
        return [evolve(view, topics=there, missing=[(topic, Code.LEADER_NOT_AVAILABLE, "being made")])]

    cluster.override = without


def interrupted(driver: FakeDriver, consumer: Consumer) -> None:
    """A first call into which Ctrl-C comes with the first answer."""
    come = iter([None, KeyboardInterrupt()])

    def interrupt() -> None:
        problem = next(come, None)
        if problem is not None:
            raise problem

    driver.interrupt, driver.changing.interrupted = interrupt, driver.core.crash
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()


def timed_out(driver: FakeDriver, consumer: Consumer) -> None:
    with pytest.raises(TimedOut, match="waited 3 s for an answer of any broker to the question for topic 'u'; the last answer was Leader"):
        consumer.position("u", 0, timeout_s=3)


def polled(driver: FakeDriver, consumer: Consumer) -> None:
    since_ms = driver.now_ms()
    assert consumer.poll() == []
    assert consumer.poll(timeout_s=200) == []
    assert driver.now_ms() - since_ms == 200_000 + driver.core.config.unanswered_ms  # once, to be told where "latest" is


@pytest.mark.parametrize("call", [polled, timed_out, interrupted])
def test_a_first_call_that_ends_half_way_leaves_the_start_as_it_is(call: Callable[[FakeDriver, Consumer], None]) -> None:
    cluster, driver, client = make({"t": 1, "u": 1})
    for topic in "tu":
        client.append(topic, 0, ["before"])
    hide(cluster, "u")
    client.topics()
    consumer = client.consumer("t", "u", start="latest")
    call(driver, consumer)
    cluster.override = None
    assert consumer.poll(timeout_s=5) == []
    for topic in "tu":
        client.append(topic, 0, [f"{topic} after"])
    assert sorted([*consumer.poll(timeout_s=1), *consumer.poll(timeout_s=1)], key=lambda r: r.topic) == [
        *client.fetch("t", 0, 1),
        *client.fetch("u", 0, 1),
    ]
    consumer.close()
    assert driver.core._ops == {}


def test_a_partition_that_comes_while_the_first_call_looks_is_not_overlooked() -> None:
    cluster, driver, client = make({"t": 1, "u": 1})
    hide(cluster, "u")
    client.topics()
    consumer = client.consumer("t", "u", start="latest")

    def come() -> None:
        cluster.add_partition("t", 1)
        cluster.override = None

    driver.events = [come]
    assert consumer.poll(timeout_s=5) == []
    client.append("t", 1, ["first"])
    assert [r.text() for r in consumer.poll(timeout_s=5)] == ["first"]


def test_a_topic_that_goes_while_the_first_call_looks_is_told() -> None:
    cluster, driver, client = make({"t": 1, "u": 1})
    hide(cluster, "u")
    client.topics()
    consumer = client.consumer("t", "u", start="latest")
    assert consumer.poll() == []

    def go() -> None:
        cluster.delete("t")
        cluster.override = None

    driver.events = [go]
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 't'"):
        consumer.poll(timeout_s=5)


def test_a_poll_without_a_broker_ends_in_time_and_goes_on_when_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "replog.client")
    cluster, driver, client = make({"t": 1})
    cluster.partition("t").append(RecordBatch(encode_records([b"a"], now_ms=1)))
    cluster.down = {1, 2, 3}
    consumer = client.consumer("t", start="earliest")
    for timeout_s in (0, 0.1, 130):
        since_ms = driver.now_ms()
        assert consumer.poll(timeout_s=timeout_s) == []
        assert driver.now_ms() - since_ms == timeout_s * 1_000
    assert lines_of(caplog)[0].startswith("no record for 60 s: t: waits for an answer of ")
    assert len(lines_of(caplog)) == 2
    with pytest.raises(TimedOut, match="the question for topic 't'"):
        consumer.position("t", 0, timeout_s=1)
    for call in (consumer.seek_to_end, lambda: consumer.seek("t", 0, 0), lambda: consumer.pause("t", 0)):
        since_ms = driver.now_ms()
        with pytest.raises(TimedOut, match="the question for topic 't'"):
            call()
        assert driver.now_ms() - since_ms == 30_000
    came: list[int] = []

    def come() -> None:
        cluster.down.clear()
        came.append(driver.now_ms())

    driver.events = [*[lambda: None] * 50, come]
    assert [r.text() for r in consumer.poll(timeout_s=None)] == ["a"]
    assert driver.now_ms() - came[0] <= 2 * client._core.config.retry_backoff_ms_max


def test_what_a_first_call_has_asked_ends_with_the_consumer() -> None:
    cluster, driver, client = make()
    cluster.down = {1, 2, 3}
    with client.consumer("t", "u") as consumer:
        assert consumer.poll() == []
    assert driver.core._ops == {}


def test_a_topic_that_is_refused_ends_the_call_while_others_are_not_known_yet() -> None:
    cluster, driver, client = make({"t": 1})
    hide(cluster, "u")
    consumer = client.consumer("t", "u", "v")
    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartition, match="unknown topic 'v'"):
            consumer.poll()
    assert driver.core._ops == {}
    cluster.create("v")
    cluster.create("u")
    cluster.override = None
    client.append("t", 0, ["before"])
    assert consumer.poll() == []
    client.append("t", 0, ["after"])
    assert [r.text() for r in consumer.poll(timeout_s=5)] == ["after"]


@pytest.mark.parametrize("start", ["earliest", "latest", 0])
def test_a_position_ends_with_its_topic(start: Any) -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["old 0", "old 1"])
    consumer = client.consumer("t", start=start)
    assert len(consumer.poll()) == (0 if start == "latest" else 2)
    cluster.delete("t")
    cluster.create("t")
    client.topics()
    for n in range(4):
        client.append("t", 0, [f"new {n}"])
    for _ in range(2):
        with pytest.raises(UnknownTopicId, match="t-0: the topic was deleted and created again") as caught:
            consumer.poll(timeout_s=5)
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    consumer.seek("t", 0, 1)
    assert [r.text() for r in consumer.poll()] == ["new 1", "new 2", "new 3"]
    cluster.delete("t")
    cluster.create("t")
    client.topics()
    client.append("t", 0, ["newest"])
    with pytest.raises(UnknownTopicId):
        consumer.poll(timeout_s=5)
    consumer.seek_to_beginning()
    assert [r.text() for r in consumer.poll()] == ["newest"]


@pytest.mark.parametrize("seek", [False, True])
def test_from_a_time_on_nothing_is_passed_over_that_is_committed_meanwhile(seek: bool) -> None:
    cluster, _, client = make({"t": 1})
    start, partition = datetime.fromtimestamp(1_700_000_000, UTC), cluster.partition("t")
    partition.append(RecordBatch(encode_records(["before"], now_ms=1_699_999_999_000)))
    answers: list[Any] = []

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, ListOffsets) or answers:
            return None
        answers.append(ListedOffsets(message.request, [cluster._listed(broker, entry) for entry in message.entries]))
        partition.append(RecordBatch(encode_records(["the first"], now_ms=1_700_000_000_005)))  # before anything else is asked
        return answers

    cluster.override = override
    consumer = client.consumer("t", start=start)
    if seek:
        consumer.seek("t", 0, start)
        assert consumer.position("t", 0) == 1
    assert [r.text() for r in consumer.poll(timeout_s=1)] == ["the first"]


def hold_fetches(cluster: Any) -> None:
    """Leaders hold fetches that find nothing, as the real ones do; those that find something are answered at once."""

    def hold(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Fetch) or cluster._fetched(broker, message.entries[0]).slices:
            return None
        return []

    cluster.override = hold


@pytest.mark.parametrize("start", ["earliest", "latest", datetime.fromtimestamp(1_700_000_000, UTC)])
def test_a_fetch_lies_with_the_leader_after_the_first_poll_when_answers_come_at_once(start: Any) -> None:
    cluster, _, client = make({"t": 1})
    cluster.partition("t").append(RecordBatch(encode_records(["before"], now_ms=1)))
    cluster.partition("t").start = 1
    hold_fetches(cluster)
    with client.consumer("t", start=start) as consumer:
        assert consumer.poll() == []
        assert cluster.counts["Fetch"] == 1


def test_a_fetch_lies_with_the_leader_behind_what_is_passed_over() -> None:
    cluster, _, client = make({"t": 1})
    cluster.partition("t").append(RecordBatch(encode_records([b"marker"], now_ms=1, attributes=1 << 6)))
    hold_fetches(cluster)
    with client.consumer("t", start="earliest") as consumer:
        assert consumer.poll() == []
        assert consumer.position("t", 0) == 1
        assert cluster.counts["Fetch"] == 2


def test_where_nothing_is_answered_at_once_the_question_is_repeated_soon() -> None:
    cluster, driver, client = make({"t": 1}, fetch_wait_ms=0)
    came: list[int] = []

    def come() -> None:
        cluster.partition("t").append(RecordBatch(encode_records([b"late"], now_ms=1)))
        came.append(driver.now_ms())

    with client.consumer("t", start="earliest") as consumer:
        assert consumer.poll() == []
        driver.events = [come]
        assert [r.text() for r in consumer.poll(timeout_s=5)] == ["late"]
    assert driver.now_ms() - came[0] <= client._core.config.retry_backoff_ms


@pytest.mark.parametrize("partitions", [None, [0, 1]])
def test_a_topic_that_is_deleted_does_not_end_a_consumer_of_several(partitions: list[int] | None) -> None:
    cluster, _, client = make({"t": 2, "u": 2})
    consumer = client.consumer("t", "u", partitions=partitions, start="earliest")
    client.append("t", 0, ["t0"])
    client.append("u", 0, ["u0"])
    assert sorted(r.text() for r in consumer.poll()) == ["t0", "u0"]
    cluster.delete("t")
    client.topics()
    client.append("u", 1, ["u1"])
    with pytest.raises(UnknownTopicOrPartition, match="unknown topic 't'"):
        consumer.poll(timeout_s=5)
    assert [r.text() for r in consumer.poll(timeout_s=5)] == ["u1"]
    cluster.create("t", 2)
    client.topics()
    client.append("t", 1, ["of the new t"])
    assert [r.text() for r in consumer.poll(timeout_s=5)] == ["of the new t"]


def test_the_only_topic_that_is_deleted_stays_an_error() -> None:
    cluster, _, client = make({"t": 1})
    consumer = client.consumer("t", start="earliest")
    assert consumer.poll() == []
    cluster.delete("t")
    client.topics()
    for _ in range(3):
        with pytest.raises(UnknownTopicOrPartition, match="unknown topic 't'"):
            consumer.poll(timeout_s=5)
    cluster.create("t")
    client.topics()
    with pytest.raises(UnknownTopicId, match="deleted and created again"):  # it was followed: what it has now is another log
        consumer.poll(timeout_s=5)


def test_what_was_fetched_of_a_deleted_topic_is_still_handed_out() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["old 0", "old 1"])
    consumer = client.consumer("t", start="earliest")
    assert [r.text() for r in consumer.poll(max_records=1)] == ["old 0"]
    cluster.delete("t")
    cluster.create("t")
    client.topics()
    client.append("t", 0, ["new"])
    assert [r.text() for r in consumer.poll(max_records=1)] == ["old 1"]
    with pytest.raises(UnknownTopicId):
        consumer.poll(timeout_s=5)


def test_a_wait_without_end_is_inf_or_none() -> None:
    cluster, driver, client = make({"t": 1})
    for forever in (None, float("inf"), 1e300):
        consumer = client.consumer("t")
        assert consumer.poll() == []
        driver.events = [*[lambda: None] * 50, lambda: cluster.partition("t").append(RecordBatch(encode_records([b"late"], now_ms=1)))]
        assert [r.text() for r in consumer.poll(timeout_s=forever)] == ["late"]
        consumer.close()


def test_an_unavailable_leader_is_waited_out() -> None:
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    client.append("t", 0, ["a"])
    consumer = client.consumer("t", start="earliest")
    cluster.move("t", 0, None)
    assert consumer.poll(timeout_s=30) == []
    cluster.move("t", 0, 3)
    assert [r.text() for r in consumer.poll(timeout_s=10)] == ["a"]
    driver.filter = lambda to, message: isinstance(message, ListOffsets)
    consumer.seek_to_end()
    assert consumer.poll(timeout_s=30) == []


def test_a_deposed_leader_is_not_asked_for_what_its_successor_has_told() -> None:
    """KIP-320: nothing was fetched yet, and what the client knew of the cluster is gone; a late broker tells it who led before."""
    cluster, driver, client = make({"t": 1})
    before = cluster.view()
    cluster.move("t", 0, 2)
    client.append("t", 0, ["a"])
    consumer = client.consumer("t")
    assert consumer.position("t", 0) == 1

    def late(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Metadata):
            return [evolve(before, request=message.request)]
        if isinstance(message, Fetch) and broker == 1:
            (entry,) = message.entries
            answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, Code.OFFSET_OUT_OF_RANGE, 0, 0)
            return [Fetched(message.request, 0, -1, 0, [answer])]
        return None

    with driver.lock:
        client._core.crash(KeyboardInterrupt())
    cluster.override = late
    assert consumer.poll(timeout_s=1) == []
    cluster.override = None
    client.append("t", 0, ["b"])
    assert [record.text() for record in consumer.poll(timeout_s=5)] == ["b"]


def test_another_thread_is_refused() -> None:
    _, _, client = make({"t": 1})
    consumer = client.consumer("t")
    consumer.poll()
    refused: list[BaseException] = []

    def use() -> None:
        try:
            consumer.poll()
        except UsageError as error:
            refused.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "belongs to the thread that first used it" in str(refused[0])


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("no record for")]


def test_who_waits_long_for_nothing_says_where_and_for_whom(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "replog.client")
    cluster, driver, client = make({"t": 2})
    client.append("t", 0, ["a"])
    consumer = client.consumer("t")
    assert consumer.poll(timeout_s=59) == []
    assert lines_of(caplog) == []
    consumer.poll(timeout_s=2)
    leaders = [cluster.partition("t", number).leader for number in (0, 1)]
    assert lines_of(caplog) == [
        f"no record for 60 s: t-0 at offset 1, high watermark 1, led by broker {leaders[0]}; "
        f"t-1 at offset 0, high watermark 0, led by broker {leaders[1]}"
    ]
    consumer.poll(timeout_s=200)
    assert [line.partition(":")[0] for line in lines_of(caplog)] == ["no record for 60 s", "no record for 120 s", "no record for 240 s"]
    client.append("t", 0, ["b"])
    assert len(consumer.poll(timeout_s=1)) == 1
    consumer.poll(timeout_s=50)
    driver.pass_time(600_000)  # nobody asked: that is no silence
    consumer.poll(timeout_s=50)
    assert len(lines_of(caplog)) == 3


def test_what_keeps_it_silent_is_told_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "replog.client")
    cluster, _, client = make({"t": 6})
    consumer = client.consumer("t", start="earliest")
    consumer.poll(timeout_s=1)
    consumer.pause("t", 0)
    cluster.move("t", 4, None)
    consumer.poll(timeout_s=130)
    first, second = lines_of(caplog)
    assert first.startswith("no record for 60 s: t-4 at offset 0, high watermark 0, led by nobody; t-1 ")
    assert second.startswith("no record for 120 s: t-4 at offset 0, high watermark 0, led by nobody (waited ")
    assert first.endswith(", and 2 more")
    assert "t-0" not in first


def test_while_all_is_paused_there_is_no_silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "replog.client")
    _, _, client = make({"t": 1})
    consumer = client.consumer("t", start="earliest")
    consumer.poll()
    consumer.pause("t", 0)
    consumer.poll(timeout_s=130)
    assert lines_of(caplog) == []
    consumer.resume("t", 0)
    consumer.poll(timeout_s=55)  # the minute that counts began after the last look, at 120 s
    assert [line.partition(" at ")[0] for line in lines_of(caplog)] == ["no record for 60 s: t-0"]


def test_who_waits_for_a_record_ends_when_it_is_closed() -> None:
    _, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    consumer = client.consumer("t", start="earliest")
    driver.events = [lambda: None, consumer.close, lambda: client.append("t", 0, ["after"])]
    assert [record.text() for record in consumer] == ["a"]
    assert len(driver.events) == 1
    assert driver.core._ops == {}


@pytest.mark.parametrize("timeout_s", [60, None])
def test_a_poll_ends_with_nothing_when_it_is_closed(timeout_s: float | None) -> None:
    _, driver, client = make({"t": 1})
    consumer = client.consumer("t")
    driver.events = [consumer.close, lambda: client.append("t", 0, ["after"])]
    assert consumer.poll(timeout_s=timeout_s) == []
    assert len(driver.events) == 1
    with pytest.raises(UsageError, match="this Consumer is closed"):
        consumer.poll()


def closed_in(consumer: Consumer, name: str, *, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it closed by another thread, or a signal handler, as one of its functions begins or has ended."""
    real = getattr(consumer, name)

    def closing(*args: Any) -> Any:
        if first:
            consumer.close()
        try:
            return real(*args)
        finally:
            consumer.close()

    monkeypatch.setattr(consumer, name, closing)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["_enter", "_assign", "_seek_topics", "_step", "_ask", "_collect", "_rest_s"])
def test_closing_it_anywhere_ends_it_and_leaves_nothing(name: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["a"])
    client = Client(FakeDriver(cluster))
    consumer = client.consumer("t", start=0 if name != "_rest_s" else "latest")
    closed_in(consumer, name, first=first, monkeypatch=monkeypatch)
    assert list(consumer) == []
    assert client._core._ops == {}


@pytest.mark.parametrize("name", ["_step", "_ask"])
def test_what_is_asked_while_it_is_closed_ends_with_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, driver, client = make({"t": 1})
    cluster.override = lambda message, broker: [] if isinstance(message, Fetch) else None
    consumer = client.consumer("t", start=0)
    closed_in(consumer, name, first=True, monkeypatch=monkeypatch)
    assert list(consumer) == []
    assert driver.core._ops == {}


@pytest.mark.parametrize("first", [True, False])
def test_closing_it_while_its_topics_are_sought_leaves_nothing(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, driver, client = make({"t": 1})
    cluster.down = {1, 2, 3}
    consumer = client.consumer("t")
    closed_in(consumer, "_seek_topics", first=first, monkeypatch=monkeypatch)
    with pytest.raises(UsageError, match="this Consumer is closed"):
        consumer.seek_to_end()
    assert driver.core._ops == {}


def test_it_ends_quietly_when_its_client_is_closed_behind_it() -> None:
    _, driver, client = make({"t": 1})
    consumer = client.consumer("t")

    def close() -> None:
        consumer.close()
        client.close()

    driver.events = [close]
    assert list(consumer) == []


def wait_for_position(consumer: Consumer) -> None:
    consumer.poll()
    consumer.position("t", 0)


@pytest.mark.parametrize(
    ("missing", "call"), [(ListOffsets, wait_for_position), (Metadata, lambda consumer: consumer.seek_to_end())], ids=["position", "seek"]
)
def test_whoever_waits_for_a_position_hears_that_it_was_closed(missing: type, call: Callable[[Consumer], None]) -> None:
    cluster, driver, client = make({"t": 1})
    consumer = client.consumer("t")
    cluster.override = lambda message, broker: [] if isinstance(message, missing) else None
    driver.events = [consumer.close]
    with pytest.raises(UsageError, match="this Consumer is closed"):
        call(consumer)
    assert driver.core._ops == {}
