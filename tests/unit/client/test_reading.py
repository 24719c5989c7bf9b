"""Reading: committed records only, and the same answer twice."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.client.fake import make

from replog.client import fetching
from replog.client.operations import AT_EARLIEST, AT_LATEST
from replog.client.reading import Reading
from replog.errors import Code, CorruptMessage, OffsetOutOfRange, TimedOut, UnknownTopicId, UnknownTopicOrPartition
from replog.messages import Fetch, Fetched, FetchedEntry, ListedOffset, ListedOffsets, ListOffsets
from replog.model import PartitionId
from replog.ports import MemorySlice
from replog.records import RecordBatch, encode_records


def texts(records: Any) -> list[str]:
    return [record.text() for record in records]


def test_a_fetch_inside_a_batch_drops_what_lies_before() -> None:
    _, _, client = make({"t": 1})
    client.append("t", 0, ["a", "b", "c"])
    records = client.fetch("t", 0, 1)
    assert [(r.topic, r.partition, r.offset, r.text()) for r in records] == [("t", 0, 1, "b"), ("t", 0, 2, "c")]
    assert client.fetch("t", 0, 3) == []


def test_p48_between_the_high_watermark_and_the_end_there_is_nothing_and_beyond_it_an_error() -> None:
    cluster, _, client = make({"t": 1})
    for n in range(10):
        client.append("t", 0, [str(n)])
    cluster.partition("t").uncommitted = 4
    assert client.fetch("t", 0, 8) == []
    assert client.fetch("t", 0, 10) == []
    assert texts(client.fetch("t", 0, 0)) == list("012345")
    with pytest.raises(OffsetOutOfRange, match=r"offset 11 of t-0 is out of range: it holds \[0, 6\)"):
        client.fetch("t", 0, 11)


def test_records_above_the_high_watermark_are_dropped_even_if_a_broker_sends_them() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["a"])
    client.append("t", 0, ["b"])

    def generous(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Fetch):
            return None
        entry = message.entries[0]
        data = b"".join(batch.to_bytes() for batch in cluster.partition("t").log)
        answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, 0, 1, 0, 2, slices=[MemorySlice(0, 2, data)])
        return [Fetched(message.request, 0, -1, 0, [answer])]

    cluster.override = generous
    assert texts(client.fetch("t", 0, 0)) == ["a"]


def test_an_answer_with_more_records_than_one_batch_may_have_is_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, client = make({"t": 1})
    for n in range(4):
        client.append("t", 0, [str(n)] * 3)
    monkeypatch.setattr(fetching, "BATCH_RECORDS_MAX", 7)
    assert texts(client.fetch("t", 0, 0)) == list("000111")
    monkeypatch.setattr(fetching, "BATCH_RECORDS_MAX", 2)
    assert texts(client.fetch("t", 0, 4)) == list("11")  # one batch always is
    assert texts(client.read("t")) == list("000111222333")


def test_control_batches_are_passed_over() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["a"])
    control = RecordBatch(encode_records([b"marker"], now_ms=1, attributes=1 << 6))
    cluster.partition("t").append(control)
    client.append("t", 0, ["b"])
    assert texts(client.read("t")) == ["a", "b"]
    assert client.fetch("t", 0, 1)[0].offset == 2


def test_a_damaged_or_foreign_batch_is_fetched_again_and_then_reported() -> None:
    cluster, driver, client = make({"t": 1}, request_timeout_ms=5_000)
    client.append("t", 0, ["a"])
    wrong = RecordBatch(bytes(cluster.partition("t").log[0].body))
    wrong.stamp(PartitionId(b"x" * 16, 0, 0), 0, 0)
    released: list[MemorySlice] = []
    asked: list[tuple[bool, int]] = []

    class Slice(MemorySlice):
        def release(self) -> None:
            released.append(self)

    def damage(times: int) -> Any:
        left = [times]

        def override(message: Any, broker: int) -> list[Any] | None:
            if not isinstance(message, Fetch) or not left[0]:
                return None
            left[0] -= 1
            asked.append((message.verify, driver.now_ms()))
            entry = message.entries[0]
            answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, 0, 1, 0, 1, slices=[Slice(0, 1, wrong.to_bytes())])
            return [Fetched(message.request, 0, -1, 0, [answer])]

        return override

    cluster.override = damage(2)
    assert texts(client.fetch("t", 0, 0)) == ["a"]
    assert [verify for verify, _ in asked] == [False, True]
    asked.clear()
    cluster.override = damage(1_000)
    with pytest.raises(CorruptMessage, match=r"broker 1 answered with a damaged batch: .*found in log.* \(tried for 5 s\)") as caught:
        client.fetch("t", 0, 0)
    assert caught.value.broker == 1
    assert [verify for verify, _ in asked] == [False] + [True] * (len(asked) - 1)
    times = [at for _, at in asked]
    assert 8 < len(asked) < 20
    assert times[-1] - times[-2] > 4 * (times[1] - times[0])
    assert len(released) == 2 + len(asked)


def test_another_leader_ends_the_damage() -> None:
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["a"])
    damaged = bytearray(cluster.partition("t").log[0].to_bytes())
    damaged[-1] ^= 1
    asked: list[int] = []

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Fetch) or broker != 1:
            return None
        asked.append(broker)
        if len(asked) == 8:  # it has found out that its disk is bad
            cluster.move("t", 0, 2)
        entry = message.entries[0]
        pieces = [MemorySlice(0, 1, bytes(damaged))]
        answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, 0, 1, 0, 1, slices=pieces)
        return [Fetched(message.request, 0, -1, 0, [answer])]

    cluster.override = override
    assert texts(client.read("t")) == ["a"]
    assert len(asked) == 8


def test_an_intact_batch_from_further_on_is_damage_too() -> None:
    """A misdirected write may put one there; taking it would skip what lies between."""
    cluster, _, client = make({"t": 1})
    client.append("t", 0, ["a"])
    client.append("t", 0, ["b"])
    later, verified = cluster.partition("t").log[1].to_bytes(), []

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Fetch) or message.verify:
            return None
        verified.append(message.verify)
        entry = message.entries[0]
        answer = FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, 0, 2, 0, 2, slices=[MemorySlice(0, 2, later)])
        return [Fetched(message.request, 0, -1, 0, [answer])]

    cluster.override = override
    assert texts(client.fetch("t", 0, 0)) == ["a", "b"]
    assert verified == [False]


def test_a_read_ends_with_its_topic() -> None:
    cluster, _, client = make({"t": 1}, fetch_bytes=1024)
    for n in range(40):
        client.append("t", 0, [f"old {n:0100}"])
    reading = client.read("t")
    seen = [next(reading).text()]
    cluster.delete("t")
    cluster.create("t")
    client.topics()
    for n in range(60):
        client.append("t", 0, [f"new {n:0100}"])
    with pytest.raises(UnknownTopicId, match="t-0: the topic was deleted and created again"):
        seen.extend(record.text() for record in reading)
    assert seen == [f"old {n:0100}" for n in range(len(seen))]
    assert len(seen) < 40
    assert len(texts(client.read("t"))) == 60


def test_a_fetch_may_wait_without_end() -> None:
    cluster, driver, client = make({"t": 1}, request_timeout_ms=500)
    for forever in (None, float("inf")):
        offset = cluster.partition("t").end
        original, left = cluster._fetched, [5]

        def held(broker: int, entry: Any, original: Any = original, left: list[int] = left) -> Any:
            driver.clock.advance(500)
            left[0] -= 1
            if not left[0]:
                cluster.partition("t").append(RecordBatch(encode_records([b"late"], now_ms=1)))
            return original(broker, entry)

        cluster._fetched = held  # type: ignore[method-assign]
        assert texts(client.fetch("t", 0, offset, wait_s=forever)) == ["late"]
        cluster._fetched = original  # type: ignore[method-assign]


def test_a_read_ends_at_the_latest_offset_of_its_start_p108() -> None:
    cluster, _, client = make({"t": 2})
    for n in range(6):
        client.append("t", n % 2, [str(n)])
    reading = client.read("t")
    client.append("t", 0, ["late"])
    assert texts(reading) == ["0", "2", "4", "1", "3", "5"]
    assert texts(client.read("t", partitions=[1])) == ["1", "3", "5"]
    assert texts(client.read("t", partitions=[1])) == ["1", "3", "5"]
    assert texts(client.read("t", partitions=[0], start=1, stop=3)) == ["2", "4"]
    assert texts(client.read("t", partitions=[0], start="latest")) == []
    assert texts(client.read("t", partitions=[0], stop=99)) == ["0", "2", "4", "late"]
    with pytest.raises(OffsetOutOfRange, match="offset 9 of t-0 is out of range: records end at 4"):
        client.read("t", partitions=[0], start=9)
    with pytest.raises(UnknownTopicOrPartition, match="no partition 5"):
        client.read("t", partitions=[5])
    cluster.partition("t").start = 1
    with pytest.raises(OffsetOutOfRange):
        list(client.read("t", partitions=[0], start=0))


def test_a_read_between_times() -> None:
    _, driver, client = make({"t": 1})
    for n in range(5):
        client.append("t", 0, [str(n)])
        driver.clock.advance(1_000)
    base = 1_700_000_000_000
    since = datetime.fromtimestamp((base + 2_000) / 1000, UTC)
    until = datetime.fromtimestamp((base + 4_000) / 1000, UTC)
    assert texts(client.read("t", start=since, stop=until)) == ["2", "3"]
    assert texts(client.read("t", start=datetime.fromtimestamp((base + 99_000) / 1000, UTC))) == []
    assert client.offset("t", 0, since) == 2
    assert client.offset("t", 0, datetime.fromtimestamp((base + 99_000) / 1000, UTC)) is None


@pytest.mark.parametrize(("start", "at"), [("earliest", -2), (datetime.fromtimestamp(1_700_000_000, UTC), 1_700_000_000_000)])
def test_a_read_whose_beginning_moves_past_the_end_that_was_told_before_is_empty(start: Any, at: int) -> None:
    """The leader was asked for both at once, and could not say yet where it begins."""
    cluster, _, client = make({"t": 1})
    partition, refused = cluster.partition("t"), [0]
    partition.append(RecordBatch(encode_records(["before"], now_ms=1_699_999_999_000)))

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, ListOffsets) or message.entries[0].at != at or refused[0]:
            return None
        refused[0] += 1
        for second in (1_699_999_999, 1_700_000_000):
            partition.append(RecordBatch(encode_records(["later"], now_ms=second * 1_000)))
        partition.start = 2
        return [ListedOffsets(message.request, [ListedOffset(message.entries[0].partition, Code.NOT_LEADER_OR_FOLLOWER)])]

    cluster.override = override
    assert texts(client.read("t", start=start)) == []
    assert refused == [1]
    assert texts(client.read("t", start=start)) == ["later"]


def test_a_read_up_to_a_time_without_record_ends_where_the_leader_looked_for_it() -> None:
    """Records end further on when it is asked for that, and some of them may be of that time."""
    cluster, _, client = make({"t": 1})
    partition, asked = cluster.partition("t"), list[int]()
    partition.append(RecordBatch(encode_records(["before"], now_ms=1_699_999_999_000)))

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, ListOffsets):
            return None
        asked.append(message.entries[0].at)
        if asked == [-1]:
            return [ListedOffsets(message.request, [ListedOffset(message.entries[0].partition, Code.NOT_LEADER_OR_FOLLOWER)])]
        answer = [ListedOffsets(message.request, [cluster._listed(broker, entry) for entry in message.entries])]
        partition.append(RecordBatch(encode_records(["of the time"], now_ms=1_700_000_000_000)))
        return answer

    cluster.override = override
    assert texts(client.read("t", start=0, stop=datetime.fromtimestamp(1_700_000_000, UTC))) == ["before"]
    assert asked == [-1, 1_700_000_000_000, -1]


def test_a_read_waits_for_a_new_leader_whose_high_watermark_is_behind() -> None:
    cluster, driver, client = make({"t": 1})
    for n in range(4):
        client.append("t", 0, [str(n)])
    reading = client.read("t")
    cluster.move("t", 0, 2)
    cluster.partition("t").uncommitted = 3

    def commit() -> None:
        cluster.partition("t").uncommitted = 0

    original = cluster._fetched

    def counted(broker: int, entry: Any) -> Any:
        driver.clock.advance(100)
        if driver.now_ms() > 3_000:
            commit()
        return original(broker, entry)

    cluster._fetched = counted  # type: ignore[method-assign]
    assert texts(reading) == ["0", "1", "2", "3"]
    cluster._fetched = original  # type: ignore[method-assign]
    reading = client.read("t", timeout_s=1)
    cluster.partition("t").uncommitted = 4
    cluster._fetched = lambda broker, entry: (driver.clock.advance(100), original(broker, entry))[1]  # type: ignore[method-assign]
    with pytest.raises(TimedOut, match="for t-0 to serve offset 0, which was committed before"):
        list(reading)


class Full:
    """A leader whose first answers to fetches, so many of them, bring none of the records: too much waits for this client."""

    def __init__(self, cluster: Any, driver: Any, times: int) -> None:
        self.cluster, self.driver, self.left = cluster, driver, times
        self.asked: list[tuple[int, int]] = []
        """(when, how long the leader may wait), for each fetch."""
        cluster.override = self

    def __call__(self, message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Fetch):
            return None
        self.asked.append((self.driver.now_ms(), message.max_wait_ms))
        self.left -= 1
        if self.left < 0:
            return None
        entry = self.cluster._fetched(broker, message.entries[0])
        entry.slices = []
        return [Fetched(message.request, 0, -1, 0, [entry])]


@pytest.mark.parametrize("times", [1, 3])
def test_records_that_an_answer_left_out_are_asked_for_again_while_there_is_time(times: int) -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a", "b"])
    full = Full(cluster, driver, times)
    assert texts(client.fetch("t", 0, 0, wait_s=20)) == ["a", "b"]
    assert len(full.asked) == times + 1
    waits = [wait for _, wait in full.asked]
    assert all(after < before for before, after in pairwise(waits))  # what is left, not all of it anew
    assert all(after > before for (before, _), (after, _) in pairwise(full.asked))  # with a pause between


def test_records_that_are_always_left_out_are_asked_for_until_the_fetch_is_given_up() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    full = Full(cluster, driver, 10**6)
    began = driver.now_ms()
    assert client.fetch("t", 0, 0) == []
    assert driver.now_ms() - began == client._core.config.request_timeout_ms
    assert 30 < len(full.asked) < 60  # pauses grow to a second
    assert {wait for _, wait in full.asked} == {0}


def test_a_fetch_that_does_not_wait_gets_what_is_there_all_the_same() -> None:
    """One that asked beside a busy consumer of the same client found nothing, every other time."""
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    full = Full(cluster, driver, 2)
    assert texts(client.fetch("t", 0, 0)) == ["a"]
    assert len(full.asked) == 3


def test_an_answer_without_records_where_there_are_none_ends_the_wait_of_which_it_is_the_answer() -> None:
    """The leader has waited, by its own clock: what is left by this one is not worth another question."""
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a"])
    full = Full(cluster, driver, 0)

    def waits(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Fetch):
            driver.clock.advance(19_990)
        return full(message, broker)

    cluster.override = waits
    assert client.fetch("t", 0, 1, wait_s=20) == []
    assert len(full.asked) == 1


def test_reads_and_consumers_ask_again_for_what_answers_left_out_after_a_pause() -> None:
    cluster, driver, client = make({"t": 1})
    client.append("t", 0, ["a", "b"])
    read = Full(cluster, driver, 2)
    assert texts(client.read("t")) == ["a", "b"]
    polled = Full(cluster, driver, 2)
    with client.consumer("t", start="earliest") as consumer:
        assert texts(consumer.poll(timeout_s=5)) == ["a", "b"]
    for full in (read, polled):
        assert len({at for at, _ in full.asked}) == len(full.asked) == 3


class Number(int):
    """Counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Number.compared += 1
        return int.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = int.__hash__


def test_a_read_looks_at_each_partition_as_often_however_many_there_are() -> None:
    compared: list[int] = []
    for count in (100, 400):
        _, _, client = make({"t": count})
        client.append("t", count - 1, ["last"])
        client.partitions_for("t")
        Number.compared = 0
        reading = Reading(client, "t", [Number(n) for n in range(count)], (None, AT_EARLIEST), (None, AT_LATEST), 30)
        compared.append(Number.compared)
        assert [(record.partition, record.text()) for record in reading.records()] == [(count - 1, "last")]
    few, many = compared
    assert many <= 4 * few
