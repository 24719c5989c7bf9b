"""What a consumer has in memory over all its partitions (`fetch_total_bytes`), and that each of them gets its turn."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.client.fake import FakeCluster, FakeDriver, make

from replog.client.client import Client
from replog.client.consumer import Consumer
from replog.messages import Fetch
from replog.records import Record, RecordBatch, encode_records

KIB, MIB = 1 << 10, 1 << 20
ANSWER = 1_000 * 202
"""What a batch of `fill` takes in memory. It is larger than the smallest `fetch_bytes`: then an answer has one."""


def fill(cluster: FakeCluster, partitions: int, batches: int = 1, values: Sequence[bytes] = (b"x" * 20,) * 1_000) -> None:
    """Batches in each partition of topic "t": 22 KB as they are stored."""
    body = encode_records(values, now_ms=1)
    for number in range(partitions):
        for _ in range(batches):
            cluster.partition("t", number).append(RecordBatch(body))


def held(consumer: Consumer) -> int:
    """Bytes that are buffered."""
    return sum(one.bytes_each * len(one.buffer) for one in consumer._partitions.values())


def note_fetches(cluster: FakeCluster, *, hold: bool = False) -> list[Fetch]:
    """Every fetch that comes from now on; with `hold`, those that find nothing lie with their leaders."""
    seen: list[Fetch] = []

    def note(message: Any, broker: int) -> list[Any] | None:
        if isinstance(message, Fetch):
            seen.append(message)
            if hold and message.max_wait_ms and not cluster._fetched(broker, message.entries[0]).slices:
                return []
        return None

    cluster.override = note
    return seen


def counted(cluster: FakeCluster, seen: Sequence[Fetch]) -> Counter[int]:
    """How often each partition was asked."""
    return Counter(message.entries[0].partition.partition for message in seen)


def made(partitions: int, **config: Any) -> tuple[FakeCluster, FakeDriver, Client]:
    return make({"t": partitions}, **config)


@pytest.mark.parametrize("total", [1 * KIB, 500 * KIB, 2 * MIB])
def test_no_further_partition_is_asked_while_the_bound_is_reached_and_everything_is_read(total: int) -> None:
    cluster, _, client = made(30, fetch_bytes=1 * KIB, fetch_total_bytes=total)
    fill(cluster, 30, batches=3)
    consumer = client.consumer("t", start="earliest")
    records, most = [], 0
    while found := consumer.poll(max_records=700, timeout_s=1):
        records += found
        most = max(most, held(consumer) + len(found) * ANSWER // 1_000)
    assert len(records) == 90_000
    assert total - ANSWER < most < total + 2 * ANSWER
    for number in range(30):
        assert [r.offset for r in records if r.partition == number] == list(range(3_000))


def test_how_large_an_answer_is_in_memory_is_learned() -> None:
    cluster, _, client = made(40, fetch_bytes=1 * KIB, fetch_total_bytes=4 * MIB)
    for values in ([b""], [b"x" * 20] * 1_000, [b""]):
        fill(cluster, 40, values=values)
    consumer = client.consumer("t", start="earliest")
    while consumer.poll(max_records=100, timeout_s=1):
        assert held(consumer) < 4 * MIB + 5 * ANSWER  # the first answer of each says nothing of the second


def test_all_get_their_turn() -> None:
    cluster, _, client = made(9, fetch_bytes=1 * KIB, fetch_total_bytes=1 * KIB)
    fill(cluster, 9, batches=6)
    seen = note_fetches(cluster)
    consumer = client.consumer("t", start="earliest")
    for turn in range(1, 6):
        while len(seen) < 9 * turn:
            consumer.poll(timeout_s=1)
        assert set(counted(cluster, seen).values()) == {turn}


def test_what_is_paused_holds_nobody_up() -> None:
    cluster, _, client = made(12, fetch_bytes=1 * KIB, fetch_total_bytes=100 * KIB)
    fill(cluster, 12)
    consumer = client.consumer("t", start="earliest")
    (first,) = consumer.poll(max_records=1)
    full = {number for (_, number), one in consumer._partitions.items() if one.buffer}
    assert held(consumer) > 100 * KIB
    for number in full:
        consumer.pause("t", number)
    found: list[Record] = []
    while more := consumer.poll(timeout_s=1):
        found += more
    assert first.partition in full
    assert {r.partition for r in found} == set(range(12)) - full
    for number in full:
        consumer.resume("t", number)
    while more := consumer.poll(timeout_s=1):
        found += more
    assert len(found) == 11_999


def test_what_nobody_answers_holds_the_others_up_once() -> None:
    cluster, driver, client = made(30, fetch_bytes=1 * KIB, fetch_total_bytes=16 * KIB)
    fill(cluster, 30)
    cluster.paused = {1}  # it leads ten of them
    cluster.move("t", 1, None)
    consumer = client.consumer("t", start=0)
    since_ms, found = driver.now_ms(), Counter[int]()
    while sum(found.values()) < 19_000:
        found.update(r.partition for r in consumer.poll(timeout_s=10))
    config = client._core.config
    assert driver.now_ms() - since_ms < 3 * (config.unanswered_ms + config.fetch_wait_ms + config.retry_backoff_ms_max)
    assert set(found) == {number for number in range(30) if number % 3 and number != 1}
    driver.resume()
    cluster.move("t", 1, 2)
    while sum(found.values()) < 30_000:
        found.update(r.partition for r in consumer.poll(timeout_s=100))
    assert set(found.values()) == {1_000}


def test_where_all_wait_for_new_records_all_are_asked() -> None:
    cluster, driver, client = made(200, fetch_bytes=32 * KIB, fetch_total_bytes=600 * KIB)
    fill(cluster, 1, batches=4)
    seen = note_fetches(cluster, hold=True)
    consumer = client.consumer("t", start=0)
    since_ms, records = driver.now_ms(), []
    while len(records) < 4_000:
        records += consumer.poll(timeout_s=1)
    assert driver.now_ms() - since_ms < 500  # it is behind, and has room beside those that wait
    assert consumer.poll(timeout_s=0.4) == []
    waiting = [message for message in seen if message.max_wait_ms]
    assert counted(cluster, waiting) == dict.fromkeys(range(200), 1)
    assert {message.max_bytes for message in waiting} == {600 * KIB // 400}
    assert len(seen) <= 410  # each at once for what is there, then for what comes


def test_few_partitions_are_asked_as_ever() -> None:
    cluster, _, client = made(32)
    seen = note_fetches(cluster, hold=True)
    consumer = client.consumer("t", start="latest")
    assert consumer.poll(timeout_s=0.4) == []
    waiting = [message for message in seen if message.max_wait_ms]
    assert {(message.max_bytes, message.max_wait_ms) for message in waiting} == {(1 * MIB, 500)}
    assert counted(cluster, waiting) == dict.fromkeys(range(32), 1)


def test_a_first_poll_has_records_of_all_where_answers_come_at_once() -> None:
    cluster, _, client = made(100)
    fill(cluster, 100, values=[b"one"])
    assert {r.partition for r in client.consumer("t", start="earliest").poll()} == set(range(100))


@pytest.mark.parametrize(
    "records",
    [
        [b"x" * 20] * 5_000,
        [b"x" * 2_000] * 500,
        [Record(b"v" * 10, key=b"k" * 30, timestamp_ms=n) for n in range(5_000)],
        [Record(b"v" * 50, headers=[("trace", b"t" * 16), ("kind", b"x")]) for _ in range(3_000)],
    ],
    ids=["small", "large", "keys", "headers"],
)
def test_what_records_take_is_counted_about_as_it_is(records: list[Any]) -> None:
    _, _, client = make({"t": 1})
    client.append("t", 0, records)
    consumer = client.consumer("t", start="earliest")
    consumer.position("t", 0)
    tracemalloc.start()
    try:
        consumer.poll(max_records=1)
        now, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now / 1.6 < held(consumer) < now * 1.6


def test_of_a_batch_that_is_read_from_its_middle_only_the_rest_counts() -> None:
    cluster, _, client = make({"t": 1})
    fill(cluster, 1)
    consumer = client.consumer("t", start=900)
    assert consumer.poll(max_records=1)[0].offset == 900
    assert 99 * 180 < held(consumer) < 99 * 250
