"""Topics that come and go leave nothing behind: not in the store, not on disk, not in memory.

REPLOG_TOPICS says how many (1,000 in memory and 200 in files, which take longer); the counts before and after must be the same. Time
passes when the test says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.containers import sizes

import replog
from replog.client.producer import Producer
from replog.metadata import layout
from replog.metadata.memory import MemoryStore
from replog.ports import MetadataStore
from replog.testing.eventually import eventually

TOPICS = {"memory": int(os.environ.get("REPLOG_TOPICS", "1000")), "files": int(os.environ.get("REPLOG_TOPICS", "200"))}
CONFIG = {"deletion_delay_ms": 60_000}
CATALOGUE_BYTES = 150_000
"""What a folder says of its logs is written anew when some 1,000 changes speak of what is no more."""
BOUNDED = ("Meter.changes", "Meter.told", "Recent._versions", "Histogram.counts")
"""The last changes and events, of which each broker keeps so many, and the times of kinds of events that have happened for the first time:
there are as many as kinds."""
LATER_MS = 400_000
"""After this much time, quarantined copies are deleted and old stops forgotten."""


class Passing:
    """The clocks of an embedded cluster, which this can put forward."""

    def __init__(self, cluster: replog.Cluster) -> None:
        self.cluster = cluster
        self.ahead_ms = 0
        pump = cluster._embedded._pump
        now_ms, wall_ms = pump.now_ms, pump.wall_ms
        pump.now_ms = lambda: now_ms() + self.ahead_ms
        pump.wall_ms = lambda: wall_ms() + self.ahead_ms

    def later(self, ms: int = LATER_MS) -> None:
        """Let time pass, in steps in which everybody gets his turn."""
        for _ in range(0, ms, 5_000):
            self.ahead_ms += 5_000
            self.cluster.topics()


def nodes(store: MetadataStore, path: str = "/") -> list[str]:
    """Every path in the store."""
    found = []
    for name in store.list(path):
        child = f"{path.rstrip('/')}/{name}"
        found += [child, *nodes(store, child)]
    return found


def come_and_go(client: replog.Client, producer: Producer, numbers: range) -> None:
    """Topics that are written to and read from in each way, and deleted."""
    for number in numbers:
        name = f"t{number}"
        client.create_topic(name, partitions=2, min_isr=1)
        client.append(name, 0, ["x"])
        producer.send(name, "y", partition=1).result(timeout_s=60)
        assert len(list(client.read(name))) == 2
        if number % 10 == 0:
            client.alter_topic(name, retention_ms=1_000_000)
            client.add_partitions(name, 3)
            client.remove_partitions(name, [2])
            client.elect_leaders([(name, 0)])
        client.delete_topic(name)


def all_of(cluster: replog.Cluster, *more: Any) -> dict[str, int]:
    """What is in the containers of brokers, controllers, clients and what carries their messages."""
    with cluster._embedded.lock:
        return dict(sizes(cluster._embedded, *more))


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """What has more in it, but for what is `BOUNDED`."""
    found = {name: (before.get(name, 0), count) for name, count in after.items() if count > before.get(name, 0)}
    return {name: counts for name, counts in found.items() if name not in BOUNDED}


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def counted(data: Path | None, store: MetadataStore) -> Iterator[tuple[replog.Cluster, Passing, Producer]]:
    """A cluster in which topics have come and gone before: what is made once is there."""
    with replog.Cluster(data, brokers=3, store=store, config=CONFIG) as cluster, cluster.producer() as producer:
        cluster.create_topic("kept", partitions=2)
        cluster.append("kept", 0, ["x"])
        passing = Passing(cluster)
        come_and_go(cluster, producer, range(11))
        passing.later()
        yield cluster, passing, producer


def test_a_topic_that_is_there_is_seen_by_whoever_counts() -> None:
    """No test that cannot fail: these are where a topic leaves traces."""
    with counted(None, MemoryStore()) as (cluster, _, producer):
        before = all_of(cluster, producer)
        cluster.create_topic("new", partitions=2)
        cluster.append("new", 0, ["x"])
        producer.send("new", "y").result(timeout_s=60)
        seen = grown(before, all_of(cluster, producer))
    assert any(name.endswith(".partitions") for name in seen), seen
    traces = {
        "Cluster.topics",
        "Cluster.states",
        "Cluster._by_broker",
        "Commands._named",
        "Routing.topics",
        "View.topics",
        "Views._shapes",
        "Writer.queues",
        "Producer._routes",
    }
    assert traces <= set(seen), seen


@pytest.mark.parametrize("where", ["memory", "files"])
def test_topics_that_come_and_go_leave_nothing_behind(tmp_path: Path, where: str) -> None:
    store = MemoryStore()
    with counted(None if where == "memory" else tmp_path / "data", store) as (cluster, passing, producer):
        before, stored, on_disk, size = all_of(cluster, producer), nodes(store), files(tmp_path), bytes_of(tmp_path)
        come_and_go(cluster, producer, range(100, 100 + TOPICS[where]))
        passing.later()
        assert [path for path in nodes(store) if path not in stored] == []
        assert files(tmp_path) == on_disk
        assert bytes_of(tmp_path) < size + 3 * CATALOGUE_BYTES
        assert grown(before, all_of(cluster, producer)) == {}


def test_a_dead_broker_keeps_one_record_of_each_and_no_more(tmp_path: Path) -> None:
    store = MemoryStore()
    many = max(20, TOPICS["files"] // 10)
    with counted(tmp_path / "data", store) as (cluster, passing, producer):
        before, stored, on_disk = all_of(cluster, producer), nodes(store), files(tmp_path)
        names = [f"d{number}" for number in range(many)]
        for name in names:
            cluster.create_topic(name, assignment={0: [1, 2, 3], 1: [3, 1, 2]}, min_isr=1)
            cluster.append(name, 1, ["x"])
        cluster.wait_until_in_sync()
        cluster.kill_broker(3)
        for name in names:
            cluster.delete_topic(name)
        passing.later()
        records = store.list(layout.REMOVED)
        assert len(records) == many
        for record in records:
            path = f"{layout.REMOVED}/{record}"
            found = store.read(path)
            assert found is not None
            assert layout.decode_removed(path, found.value) == (3,)
        expected = {"/admin", layout.REMOVED, *(f"{layout.REMOVED}/{record}" for record in records)}
        assert {path for path in nodes(store) if path not in stored} == expected - set(stored)
        left = {name: b - a for name, (a, b) in grown(before, all_of(cluster, producer)).items()}
        the_records = {name for name, count in left.items() if count >= many and not name.startswith("_Tree.")}
        assert the_records == {"Cluster.removed", "RemovedSet.brokers", "Meter.traffic"}  # it is not there to forget what it counted
        assert left["Cluster.removed"] == left["RemovedSet.brokers"] == many

        cluster.start_broker(3)
        eventually(lambda: (passing.later(5_000), store.list(layout.REMOVED) == [])[1])
        passing.later()
        assert [path for path in nodes(store) if path not in stored] == []
        assert [path for path in files(tmp_path) if path not in on_disk] == []
        after = grown(before, all_of(cluster, producer))  # its life is another one: some things are no longer shared
        assert {name: (was, now) for name, (was, now) in after.items() if now - was >= many} == {}
