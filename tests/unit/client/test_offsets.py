"""Where a time is in a partition: its first record at or after it, although leaders know of batches alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, FakePartition, make

from replog.errors import Code, CorruptMessage, TopicAuthorizationFailed, UsageError
from replog.messages import Fetch, Fetched, FetchedEntry, ListedOffset, ListedOffsets, ListOffsets
from replog.ports import MemorySlice
from replog.records import Record, RecordBatch, encode_records

T = 1_700_000_000_000


def at(after_ms: int) -> datetime:
    return datetime.fromtimestamp((T + after_ms) / 1000, UTC)


def store(partition: FakePartition, *after_ms: int, **framing: Any) -> None:
    """A batch with a record of each of these times."""
    records = [Record(f"{partition.end + n}", timestamp_ms=T + after) for n, after in enumerate(after_ms)]
    partition.append(RecordBatch(encode_records(records, now_ms=T, **framing)))


def asked_of(cluster: FakeCluster, act: Callable[[Any, int], Any] = lambda message, broker: None) -> list[str]:
    """What brokers are asked about offsets and records from now on; `act` may answer in their place."""
    asked: list[str] = []

    def override(message: Any, broker: int) -> Any:
        if isinstance(message, Fetch | ListOffsets):
            asked.append(type(message).__name__)
        return act(message, broker)

    cluster.override = override
    return asked


def test_a_time_is_the_first_record_at_or_after_it_also_within_a_batch() -> None:
    cluster, _, client = make({"t": 1})
    store(cluster.partition("t"), 1, 2, 3)
    store(cluster.partition("t"), 9, 4, 7, 5)  # in the order of appending, whatever their times
    store(cluster.partition("t"), 20)
    found = {after: client.offset("t", 0, at(after)) for after in (0, 1, 2, 3, 4, 9, 10, 20, 21)}
    assert found == {0: 0, 1: 0, 2: 1, 3: 2, 4: 3, 9: 3, 10: 7, 20: 7, 21: None}


def test_a_read_between_times_within_batches() -> None:
    cluster, _, client = make({"t": 1})
    store(cluster.partition("t"), 1, 2, 3)
    store(cluster.partition("t"), 4, 5, 6)
    assert [r.text() for r in client.read("t", stop=at(3))] == ["0", "1"]
    assert [r.text() for r in client.read("t", start=at(3))] == ["2", "3", "4", "5"]
    assert [r.text() for r in client.read("t", start=at(2), stop=at(6))] == ["1", "2", "3", "4"]
    with client.consumer("t", start=at(5)) as consumer:
        assert [r.text() for r in consumer.poll()] == ["4", "5"]
        consumer.seek("t", 0, at(6))
        assert consumer.position("t", 0) == 5


def test_an_end_is_asked_in_one_entry_and_a_time_with_one_batch() -> None:
    cluster, _, client = make({"t": 1})
    for after in (1, 2, 3):
        store(cluster.partition("t"), after, after)
    messages: list[Any] = []
    asked = asked_of(cluster, lambda message, broker: messages.append(message))
    assert (client.offset("t", 0, "earliest"), client.offset("t", 0, "latest")) == (0, 6)
    assert asked == ["ListOffsets", "ListOffsets"]
    assert client.offset("t", 0, at(2)) == 2
    assert asked[2:] == ["ListOffsets", "Fetch"]
    assert messages[-1].max_bytes == 1


def test_of_many_partitions_a_time_is_asked_one_by_one() -> None:
    """A leader searches so many partitions for one request, and each of them once: whoever asks like this is never refused."""
    cluster, _, client = make({"t": 30})
    for number in range(30):
        store(cluster.partition("t", number), 1, 2)
    messages: list[Any] = []
    asked_of(cluster, lambda message, broker: messages.append(message))
    assert [r.text() for r in client.read("t", start=at(2), stop=at(5))] == ["1"] * 30
    with client.consumer("t", start=at(2)) as consumer:
        assert [r.text() for r in consumer.poll(timeout_s=5)] == ["1"] * 30
    times = [sum(entry.at >= 0 for entry in message.entries) for message in messages if isinstance(message, ListOffsets)]
    assert (max(times), sum(times)) == (1, 90)


def test_a_batch_that_retention_takes_meanwhile_is_asked_about_again() -> None:
    cluster, _, client = make({"t": 1})
    partition = cluster.partition("t")
    store(partition, 5, 6)
    store(partition, 1, 7)

    def trim(message: Any, broker: int) -> None:
        if isinstance(message, Fetch):
            partition.start = 2

    asked = asked_of(cluster, trim)
    assert client.offset("t", 0, at(6)) == 3
    assert asked == ["ListOffsets", "Fetch", "ListOffsets", "Fetch"]


def test_a_new_leader_is_asked_for_the_time_again() -> None:
    """What the old one has named may not be in its log: an unclean election."""
    cluster, _, client = make({"t": 1})
    partition = cluster.partition("t")
    store(partition, 5, 6)
    moved: list[int] = []

    def move(message: Any, broker: int) -> None:
        if isinstance(message, Fetch) and not moved:
            moved.append(broker)
            partition.log.clear()
            store(partition, 1, 2)
            store(partition, 3, 6)
            cluster.move("t", 0, 2)

    asked = asked_of(cluster, move)
    assert client.offset("t", 0, at(5)) == 3
    assert asked == ["ListOffsets", "Fetch", "ListOffsets", "Fetch"]


def test_another_log_of_the_name_is_asked_for_the_time_again() -> None:
    cluster, _, client = make({"t": 1})
    store(cluster.partition("t"), 5, 6)
    made: list[int] = []

    def make_again(message: Any, broker: int) -> None:
        if isinstance(message, Fetch) and not made:
            made.append(broker)
            cluster.delete("t")
            cluster.create("t")
            store(cluster.partition("t"), 1, 2, 7)

    asked_of(cluster, make_again)
    assert client.offset("t", 0, at(6)) == 2


def damaged(cluster: FakeCluster, times: int) -> Callable[[Any, int], Any]:
    """A leader whose first answers to fetches, so many of them, are damaged."""
    data = bytearray(cluster.partition("t").log[0].to_bytes())
    data[-1] ^= 1
    left = [times]

    def act(message: Any, broker: int) -> Any:
        left[0] -= isinstance(message, Fetch)
        if not isinstance(message, Fetch) or left[0] < 0:
            return None
        entry = message.entries[0]
        answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, 0, 2, 0, 2, slices=[MemorySlice(0, 2, bytes(data))])
        return [Fetched(message.request, 0, -1, 0, [answer])]

    return act


def test_a_damaged_batch_is_fetched_again_and_then_reported() -> None:
    cluster, _, client = make({"t": 1})
    store(cluster.partition("t"), 5, 6)
    asked = asked_of(cluster, damaged(cluster, 2))
    assert client.offset("t", 0, at(6)) == 1
    assert asked == ["ListOffsets", "Fetch", "Fetch", "Fetch"]
    asked_of(cluster, damaged(cluster, 10**6))
    with pytest.raises(CorruptMessage, match="broker 1 answered with a damaged batch"):
        client.offset("t", 0, at(6), timeout_s=2)


def test_an_answer_that_leaves_the_batch_out_is_asked_for_again() -> None:
    cluster, driver, client = make({"t": 1})
    store(cluster.partition("t"), 5, 6)
    left, fetched_at = [2], list[int]()

    def leave_out(message: Any, broker: int) -> Any:
        if not isinstance(message, Fetch):
            return None
        left[0] -= 1
        fetched_at.append(driver.now_ms())
        answer = cluster._fetched(broker, message.entries[0])
        answer.slices = answer.slices if left[0] < 0 else []
        return [Fetched(message.request, 0, -1, 0, [answer])]

    asked_of(cluster, leave_out)
    assert client.offset("t", 0, at(6)) == 1
    assert len(set(fetched_at)) == 3  # with a pause between


def test_batches_whose_headers_promise_too_much_are_passed_over() -> None:
    cluster, _, client = make({"t": 1})
    partition = cluster.partition("t")
    for _ in range(2):
        store(partition, 1, 2)
        partition.log[-1].max_timestamp_ms = T + 50
    store(partition, 1, 50, attributes=1 << 6)  # a control batch holds no records of programs
    store(partition, 1, 40)
    original = cluster._listed

    def listed(broker: int, entry: Any) -> ListedOffset:
        found = original(broker, entry)
        return found if entry.at < 0 else ListedOffset(entry.partition, 0, 0, T + 50, found.leader_epoch, found.end_offset, 0)

    cluster._listed = listed  # type: ignore[method-assign]
    assert client.offset("t", 0, at(40)) == 7
    assert client.offset("t", 0, at(45)) is None


def test_who_may_not_read_is_told_no_offset_of_a_time() -> None:
    cluster, _, client = make({"t": 1})
    store(cluster.partition("t"), 5, 6)

    def refuse(message: Any, broker: int) -> Any:
        if not isinstance(message, Fetch):
            return None
        entry = message.entries[0]
        answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, Code.TOPIC_AUTHORIZATION_FAILED)
        return [Fetched(message.request, 0, 0, 0, [answer])]

    asked_of(cluster, refuse)
    assert client.offset("t", 0, "latest") == 2
    with pytest.raises(TopicAuthorizationFailed, match="t-0: this client may not read topic 't': the brokers' authorizer does not") as no:
        client.offset("t", 0, at(6))
    assert (no.value.topic, no.value.partition, no.value.broker) == ("t", 0, 1)
    with pytest.raises(TopicAuthorizationFailed, match="this client may not read topic 't'"):
        next(client.read("t"))


def test_who_may_not_describe_is_told_so() -> None:
    cluster, _, client = make({"t": 1})

    def refuse(message: Any, broker: int) -> Any:
        if not isinstance(message, ListOffsets):
            return None
        found = [ListedOffset(entry.partition, Code.TOPIC_AUTHORIZATION_FAILED) for entry in message.entries]
        return [ListedOffsets(message.request, found)]

    asked_of(cluster, refuse)
    for what, action in (("earliest", "describe"), ("latest", "describe"), (at(0), "read")):
        with pytest.raises(TopicAuthorizationFailed, match=f"this client may not {action} topic 't'"):
            client.offset("t", 0, what)


def test_what_is_no_place_to_ask_for() -> None:
    """It said that an offset is allowed, to whom gave something else."""
    _, _, client = make({"t": 1})
    wrong: list[tuple[Any, str]] = [("end", "'end'"), (0, "0"), (True, "True"), (None, "None"), ([], "[]")]
    for given, shown in [*wrong, (10**5_000, "(a number of 16610 bits)")]:
        with pytest.raises(UsageError) as refused:
            client.offset("t", 0, given)
        assert str(refused.value) == f'at is {shown}; allowed are "earliest", "latest" or a datetime'
