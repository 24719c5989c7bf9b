"""A task's fetches against brokers in memory: one under way ahead, copies nearby, and leaders that changed since the plan."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.unit.client.fake import CLIENT, FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.errors import Code, TimedOut
from replog.messages import Epochs, EpochsResult, Fetch, Fetched, FetchedEntry, Metadata, OffsetsForLeaderEpoch
from replog.model import TopicPartition
from replog.ports import MemorySlice
from replog.records import RecordBatch, decode_records, encode_records
from replog.spark.connections import Connection
from replog.spark.losses import DataLost
from replog.spark.offsets import EARLIEST
from replog.spark.options import ReadOptions, Subscription
from replog.spark.planning import OffsetRange
from replog.spark.ranges import RangeReading

OPTIONS = ReadOptions(Connection(("tcp://nobody:1",)), Subscription(("t",)), EARLIEST)


def world(records: int = 6, **config: Any) -> tuple[FakeCluster, FakeDriver, Client, OffsetRange]:
    """Topic t with so many batches of one record, and the range of all of them."""
    cluster, driver, client = make({"t": 1}, **config)
    for n in range(records):
        client.append("t", 0, [str(n)])
    partition = cluster.partition("t")
    return cluster, driver, client, OffsetRange(TopicPartition("t", 0), partition.identity, 0, partition.end, partition.epoch)


def values(client: Client, one: OffsetRange, **options: Any) -> list[str]:
    reading = RangeReading(client, evolve(OPTIONS, **options), one)
    found = [record.text() for fetched in reading.stretches() for batch in fetched.batches for record in decode_records(batch)]
    reading.close()
    return found


def test_one_fetch_is_under_way_while_the_one_before_is_taken() -> None:
    cluster, _, client, one = world(fetch_bytes=1_024)
    big = RecordBatch(encode_records([b"x" * 900], now_ms=1))
    for _ in range(3):
        cluster.partition("t").append(RecordBatch(bytes(big.body)))
    reading = RangeReading(client, OPTIONS, evolve(one, stop=9))
    stretches = reading.stretches()
    cluster.override = lambda message, broker: [] if isinstance(message, Fetch) and cluster.counts["Fetch"] > 1 else None
    next(stretches)
    assert cluster.counts["Fetch"] == 2
    assert len(client._core._ops) == 1
    reading.close()  # Spark wants no more rows
    assert len(client._core._ops) == 0
    stretches.close()


def test_nothing_is_asked_beyond_the_range() -> None:
    cluster, _, client, one = world()
    assert values(client, evolve(one, start=2, stop=4)) == ["2", "3"]
    assert cluster.counts["Fetch"] == 1


def test_records_above_the_high_watermark_are_dropped_even_if_a_broker_sends_them() -> None:
    """A leader that does not know yet how much is committed may have them; they are waited for."""
    cluster, _, client, one = world(3)
    data = b"".join(batch.to_bytes() for batch in cluster.partition("t").log)
    generous = [2]

    def override(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Fetch) or not generous:
            return None
        mark = generous.pop()
        entry = message.entries[0]
        slices = [MemorySlice(0, 3, data)]
        return [Fetched(message.request, 0, -1, 0, [FetchedEntry(entry.partition, 0, entry.offset, 0, mark, 0, 3, slices=slices)])]

    cluster.override = override
    reading = RangeReading(client, OPTIONS, one)
    assert [len(fetched.batches) for fetched in reading.stretches()] == [2, 1]


def test_control_batches_and_empty_ends_are_passed_over() -> None:
    cluster, _, client, one = world(2)
    cluster.partition("t").append(RecordBatch(encode_records([b"marker"], now_ms=1, attributes=1 << 6)))
    assert values(client, evolve(one, stop=3)) == ["0", "1"]


def test_an_answer_whose_time_ran_out_while_rows_were_taken_is_asked_for_again() -> None:
    """Spark may be busy with the rows of one fetch for longer than the next one may take."""
    cluster, driver, client, one = world(6, fetch_bytes=1_024)
    cluster.partition("t").log[0] = _padded(cluster.partition("t").log[0], 1_000)
    reading = RangeReading(client, evolve(OPTIONS, fetch_timeout_ms=1_000), one)
    stretches = reading.stretches()
    first = next(stretches)
    driver.flying.clear()
    driver.clock.advance(5_000)
    rest = [record.text() for fetched in stretches for batch in fetched.batches for record in decode_records(batch)]
    assert [batch.count for batch in first.batches] == [1]
    assert rest == ["1", "2", "3", "4", "5"]


def _padded(batch: RecordBatch, size: int) -> RecordBatch:
    """A larger one in the same place."""
    made = RecordBatch(encode_records([b"0" * size], now_ms=1))
    assert batch.identity is not None
    made.stamp(batch.identity, batch.base_offset, batch.leader_epoch)
    return made


def test_a_leader_that_does_not_know_yet_what_is_committed_is_waited_for_so_long() -> None:
    cluster, _, client, one = world()
    cluster.partition("t").uncommitted = 2
    with pytest.raises(TimedOut, match=r"^waited 3 s \(replog.fetch.timeout.ms\) for t-0 to serve offset 4, which was committed before"):
        values(client, one, fetch_timeout_ms=3_000)


# -------------------------------------------------------------------------------------------------------- nearby copies


def near(cluster: FakeCluster, answer: Any = None) -> list[int]:
    """Brokers 2 and 3 are in rack r; each copy is served. Returns whom fetches are sent to."""
    asked: list[int] = []
    for broker in (2, 3):
        cluster.brokers[broker] = evolve(cluster.brokers[broker], rack="r")
    cluster.version += 1

    def served(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, Fetch):
            return None
        asked.append(broker)
        if broker == cluster.partition("t").leader:
            return None
        asking = message.entries[0]
        entry = answer(asking) if answer is not None else cluster._fetched(cluster.partition("t").leader or 0, asking)
        return [Fetched(message.request, 0, -1, 0, [entry])]

    cluster.override = served
    return asked


@pytest.mark.parametrize(("rack", "broker"), [(None, 1), ("elsewhere", 1), ("r", 2)])
def test_a_copy_in_the_rack_is_read_from(rack: str | None, broker: int) -> None:
    cluster, _, client, one = world()
    asked = near(cluster)
    client.topics()
    assert values(client, one, rack=rack) == list("012345")
    assert asked == [broker]


def test_a_leader_in_the_rack_is_the_nearest() -> None:
    cluster, _, client, one = world()
    asked = near(cluster)
    cluster.move("t", 0, 3)
    client.topics()
    assert values(client, one, rack="r") == list("012345")
    assert asked == [3]


@pytest.mark.parametrize("error", [Code.OFFSET_OUT_OF_RANGE, Code.REPLICA_NOT_AVAILABLE, Code.OFFSET_NOT_AVAILABLE])
def test_what_a_copy_cannot_serve_the_leader_does(error: int) -> None:
    cluster, _, client, one = world()
    asked = near(cluster, lambda entry: FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, error, 6, 3, 6))
    client.topics()
    assert values(client, one, rack="r") == list("012345")
    assert asked == [2, 1]
    assert values(client, one, rack="r") == list("012345")
    assert asked == [2, 1, 2, 1], "it has answered: it is asked again"


def test_a_copy_that_lags_behind_is_left_for_the_leader() -> None:
    cluster, _, client, one = world()
    asked = near(cluster, lambda entry: FetchedEntry(entry.partition, entry.leader_epoch, entry.offset, 0, 0, 0, 0))
    client.topics()
    assert values(client, one, rack="r") == list("012345")
    assert asked[-1] == 1
    assert 2 in asked


@pytest.mark.parametrize("another", [True, False])
def test_a_copy_that_does_not_answer_is_left_alone_for_a_while(another: bool) -> None:
    """Its process hangs: no connection ends, and nobody has found it out of sync yet (KIP-392)."""
    cluster, driver, client, one = world()
    asked = near(cluster)
    if not another:
        cluster.brokers[3] = evolve(cluster.brokers[3], rack="elsewhere")
    client.topics()
    sent: list[int] = []
    driver.filter = lambda to, message: isinstance(message, Fetch) and (sent.append(to) or to == 2)
    started = driver.now_ms()
    for _ in range(3):
        assert values(client, one, rack="r") == list("012345")
    assert driver.now_ms() - started < 2 * client._core.config.unanswered_ms
    assert sent == [2, 1, *([3, 3] if another else [1, 1])]
    driver.filter = None
    driver.clock.advance(299_000 - client._core.config.unanswered_ms)
    assert values(client, one, rack="r") == list("012345")
    assert 2 not in asked
    driver.clock.advance(2_000 + client._core.config.unanswered_ms)
    assert values(client, one, rack="r") == list("012345")
    assert asked[-1] == 2, "it may be well again"


def test_a_copy_that_does_not_answer_before_the_time_is_up_is_left_alone_too() -> None:
    cluster, driver, client, one = world()
    near(cluster)
    client.topics()
    driver.filter = lambda to, message: to == 2 and isinstance(message, Fetch)
    with pytest.raises(TimedOut):
        values(client, one, rack="r", fetch_timeout_ms=1_000)
    cluster.brokers[3] = evolve(cluster.brokers[3], rack=None)
    assert values(client, one, rack="r", fetch_timeout_ms=1_000) == list("012345")


@pytest.mark.parametrize("busy_ms", [4_000, 40_000])
def test_a_copy_that_nobody_listens_to_is_not_silent(busy_ms: int) -> None:
    """Spark is busy with the rows of one fetch; the answer to the next one is on its way meanwhile."""
    cluster, driver, client, one = world(6, fetch_bytes=1_024)
    cluster.partition("t").log[0] = _padded(cluster.partition("t").log[0], 1_000)
    asked = near(cluster)
    client.topics()
    reading = RangeReading(client, evolve(OPTIONS, rack="r"), one)
    late: list[Any] = []
    driver.filter = lambda to, message: isinstance(message, Fetched) and asked == [2, 2] and not late.append(message)
    stretches = reading.stretches()
    next(stretches)
    driver.filter = None
    driver.clock.advance(busy_ms)
    driver.flying += [(driver.now_ms() + 10, -1, CLIENT, 2, message) for message in late]
    assert [record.text() for fetched in stretches for batch in fetched.batches for record in decode_records(batch)] == list("12345")
    assert asked == [2, 2]


def test_a_copy_that_waits_for_records_on_purpose_is_not_silent() -> None:
    cluster, driver, client, one = world(fetch_wait_ms=20_000)
    asked = near(cluster)
    client.topics()
    waits: list[int] = []
    driver.filter = lambda to, message: isinstance(message, Fetch) and bool(waits.append(message.max_wait_ms))
    assert values(client, one, rack="r") == list("012345")
    assert asked == [2]
    assert waits[0] < client._core.config.unanswered_ms


def test_a_worker_that_knows_an_older_topic_of_the_name_asks_before_it_calls_the_new_one_gone() -> None:
    """It has read the old one, and was told nothing since; who has planned the range knows more."""
    cluster, _, client, old = world(2)
    assert values(client, old) == ["0", "1"]
    cluster.delete("t")
    cluster.create("t")
    partition = cluster.partition("t")
    for n in range(3):
        partition.append(RecordBatch(encode_records([f"new{n}"], now_ms=1)))
    one = OffsetRange(TopicPartition("t", 0), partition.identity, 0, 3, partition.epoch)
    place = client._core.view.place("t", 0)
    assert place is not None
    assert place.identity == old.identity
    assert values(client, one) == ["new0", "new1", "new2"]
    with pytest.raises(DataLost, match="t-0: offsets 0 to 1 cannot be read any more: the topic was deleted and created again"):
        values(client, old)


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("name", ["t", "u"])
def test_a_broker_that_has_not_heard_of_a_new_topic_does_not_make_a_worker_call_it_gone(name: str, fails: bool) -> None:
    """The worker has read another topic of the name, or none. The planner has asked a broker that knows more than those that are asked."""
    cluster, _, client, old = world(2)
    if name == "t":
        cluster.delete("t")
    before = cluster.view()
    cluster.create(name)
    partition = cluster.partition(name)
    for n in range(3):
        partition.append(RecordBatch(encode_records([f"new{n}"], now_ms=1)))
    late = [before] * 4
    cluster.override = lambda message, _: [evolve(late.pop(), request=message.request)] if isinstance(message, Metadata) and late else None
    known_at = cluster.controller_epoch, cluster.version
    one = OffsetRange(TopicPartition(name, 0), partition.identity, 0, 3, partition.epoch, known_at)
    assert values(client, one, fail_on_data_loss=fails) == ["new0", "new1", "new2"]
    assert not late
    if name == "t":
        assert values(client, evolve(old, known_at=known_at), fail_on_data_loss=False) == []


# -------------------------------------------------------------------------------------------- leaders since the plan


def moved(cluster: FakeCluster, *, end: int, epoch: int = 0) -> list[int]:
    """Broker 2 leads since; asked where the epoch of the plan ends, it says so. Returns the epochs it was asked about."""
    cluster.move("t", 0, 2)
    asked: list[int] = []

    def answer(message: Any, broker: int) -> list[Any] | None:
        if not isinstance(message, OffsetsForLeaderEpoch):
            return None
        asked.append(message.entries[0].epoch)
        return [Epochs(message.request, [EpochsResult(message.entries[0].partition, 0, epoch, end)])]

    cluster.override = answer
    return asked


@pytest.mark.parametrize("end", [6, 9])
def test_a_new_leader_is_asked_once_whether_it_has_the_range(end: int) -> None:
    cluster, _, client, one = world(fetch_bytes=1_024)
    partition = cluster.partition("t")
    partition.log = [_padded(batch, 900) for batch in partition.log]
    asked = moved(cluster, end=end)
    client.topics()
    assert len(values(client, one)) == 6
    assert cluster.counts["Fetch"] == 3
    assert asked == [0]


@pytest.mark.parametrize("fails", [True, False])
def test_a_new_leader_without_the_range(fails: bool) -> None:
    """What it has instead is not what was planned, although the offsets are the same."""
    cluster, _, client, one = world()
    moved(cluster, end=4)
    client.topics()
    if fails:
        with pytest.raises(DataLost, match="t-0: offsets 4 to 5 cannot be read any more: an unclean election removed them") as caught:
            values(client, one)
        assert (caught.value.first, caught.value.stop) == (4, 6)
    else:
        assert values(client, one, fail_on_data_loss=False) == list("0123")


def test_a_new_leader_that_knows_no_epoch_as_old() -> None:
    cluster, _, client, one = world()
    moved(cluster, end=-1, epoch=-1)
    client.topics()
    with pytest.raises(DataLost, match="t-0: offsets 0 to 5 cannot be read any more: an unclean election removed them"):
        values(client, one)


def test_the_next_leader_ends_the_doubt_that_one_has_left_which_knows_no_epoch_as_old() -> None:
    cluster, _, client, one = world()
    moved(cluster, end=-1, epoch=-1)
    client.topics()
    doubted = cluster.override
    assert doubted is not None

    def elect(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Fetch) and broker == 2:
            cluster.move("t", 0, 3)
            cluster.override = None
            return None
        return doubted(message, broker)

    cluster.override = elect
    assert values(client, one) == list("012345")
