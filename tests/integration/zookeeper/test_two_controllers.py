"""Two controllers at once at a real ZooKeeper: what the deposed one has under way is refused whole, nothing is done twice (P-60, P-61)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.integration.zookeeper.conftest import OpenStore
from tests.integration.zookeeper.faults import expire
from tests.threads import in_thread

import replog
from replog.errors import TimedOut
from replog.metadata import layout
from replog.metadata.zookeeper import ZooKeeperStore
from replog.model import PartitionState
from replog.ports import Conflict, MetadataStore, Op
from replog.testing.eventually import eventually

pytestmark = pytest.mark.zookeeper

PARTITIONS = 6
QUICK = {"session_ms": 4_000, "heartbeat_ms": 200, "retry_backoff_ms": 20, "retry_backoff_ms_max": 200, "leader_imbalance_check_ms": 0}
PAIRS = {n: [1 + n % 3, 1 + (n + 1) % 3] for n in range(PARTITIONS)}
ASSIGNMENT = {n: [1 + n % 3, 1 + (n + 1) % 3, 1 + (n + 2) % 3] for n in range(PARTITIONS)}


def states(store: MetadataStore, topic: str = "t") -> list[PartitionState]:
    """What is stored of each partition."""
    found = []
    for number in range(PARTITIONS):
        path = layout.partition_state_path(topic, number)
        value = store.read(path)
        assert value is not None
        found.append(layout.decode_partition_state(path, value))
    return found


def controller_epoch(store: MetadataStore) -> int:
    value = store.read(layout.CONTROLLER_EPOCH)
    assert value is not None
    return layout.decode_controller_epoch(layout.CONTROLLER_EPOCH, value.value)


def everything(store: MetadataStore, path: str = "/") -> dict[str, tuple[bytes, int]]:
    """Path -> (value, version) of all that is stored for good."""
    found = {}
    for name in store.list(path):
        child = f"{path.rstrip('/')}/{name}"
        value = store.read(child)
        if value is not None and child not in (layout.CONTROLLER,) and not child.startswith(layout.BROKER_IDS):
            found[child] = (value.value, value.version)
        found |= everything(store, child)
    return found


# ------------------------------------------------------------------------------------------------------ a write that is held


class Held:
    """The first transactions of one session that touch a path: they stand still on their way until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = ""
        self.session: ZooKeeperStore | None = None
        self.batches: list[list[Op]] = []
        self.results: list[Any] = []
        self.is_held, self.let_go, self.is_over = threading.Event(), threading.Event(), threading.Event()
        commit_each = ZooKeeperStore.commit_each

        def holding(store: ZooKeeperStore, batches: Any) -> Any:
            made = [list(batch) for batch in batches]
            touched = self.path and any(op.path.startswith(self.path) for batch in made for op in batch)
            if not touched or self.session is not None:
                return commit_each(store, made)
            self.session, self.batches = store, made
            self.is_held.set()
            self.let_go.wait(120)
            try:
                self.results = commit_each(store, made)
            except replog.ReplogError as error:
                self.results = [error]
                raise
            finally:
                self.is_over.set()
            return self.results

        monkeypatch.setattr(ZooKeeperStore, "commit_each", holding)

    def hold(self, path: str) -> None:
        """From now on."""
        self.path = path


@contextmanager
def three(store: str, folder: Path) -> Iterator[dict[int, replog.Broker]]:
    """Three brokers in this process, each with a session of its own."""
    made = {n: replog.Broker(n, listen="tcp://127.0.0.1:0", data=folder / f"b{n}", store=store, config=QUICK) for n in (1, 2, 3)}
    try:
        for broker in made.values():
            broker.start()
        for broker in made.values():
            broker.wait_until_ready()
        yield made
    finally:
        for broker in made.values():
            broker.stop(controlled=False)


@pytest.mark.parametrize("under_way", ["a topic", "a failover", "a deletion"])
def test_what_a_deposed_controller_has_under_way_is_refused_whole(
    open_store: OpenStore, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, under_way: str
) -> None:
    store, held = open_store(), Held(monkeypatch)
    with three(f"zookeeper://{address}", tmp_path) as brokers, replog.connect([b.endpoint for b in brokers.values()]) as client:
        client.create_topic("t", assignment=ASSIGNMENT, min_isr=1)
        client.append("t", 0, ["before"])
        client.create_topic("doomed", replication_factor=3)
        first, epoch = client.describe_cluster().controller_id, controller_epoch(store)
        lost = next(n for n in brokers if n != first)
        waiting = None
        if under_way == "a failover":
            held.hold(f"{layout.TOPICS}/t/")
            brokers.pop(lost).stop(controlled=False)
        elif under_way == "a topic":
            held.hold(f"{layout.TOPICS}/late")
            with pytest.raises(TimedOut):  # nobody waits for it any more: it is not asked for again
                client.create_topic("late", timeout_s=1)
        else:
            held.hold(f"{layout.DELETE_TOPICS}/doomed")
            with pytest.raises(TimedOut):
                client.delete_topic("doomed", timeout_s=1)
        assert held.is_held.wait(60)
        old = states(store)
        assert held.session is not None
        assert held.batches[0][0].path == layout.CONTROLLER_EPOCH
        waiting, _ = in_thread(lambda: expire(held.session))  # type: ignore[arg-type]
        eventually(lambda: controller_epoch(store) == epoch + 1)
        dead = {lost} if under_way == "a failover" else set()
        eventually(lambda: all(s.leader is not None and s.leader not in dead for s in states(store)))
        eventually(lambda: client.describe_cluster().controller_epoch == epoch + 1)

        # The write arrives: in a session that lives, so that only what it checks can stop it.
        before = everything(store)
        results = open_store().commit_each(held.batches)
        assert [type(result) for result in results] == [Conflict] * len(results)
        assert {result.path for result in results if isinstance(result, Conflict)} == {layout.CONTROLLER_EPOCH}
        held.let_go.set()
        assert held.is_over.wait(60)
        waiting.join()
        assert not any(isinstance(result, list) for result in held.results)
        after = everything(store)
        touched = {op.path for batch in held.batches for op in batch}
        for path in touched:
            value = after.get(path)
            if value != before.get(path):  # whoever was gone has joined again meanwhile: the next controller has let it
                assert value is not None
                assert json.loads(value[0])["controller_epoch"] == epoch + 1, path
        assert store.read(f"{layout.TOPICS}/late") is None
        assert store.read(f"{layout.TOPICS}/doomed") is not None

        # The first goes on, as a broker like any other; each leader was replaced once, if at all.
        eventually(lambda: all(set(s.isr) == set(brokers) for s in states(store)))
        assert controller_epoch(store) == epoch + 1
        for was, now in zip(old, states(store), strict=True):
            assert was.leader_epoch <= now.leader_epoch <= was.leader_epoch + (was.leader in {first, *dead})
        client.append("t", 0, ["after"])
        assert [r.text() for r in client.read("t", partitions=[0])] == ["before", "after"]


# ------------------------------------------------------------------------------------------------------ a process that stands still


def test_a_controller_that_stood_still_does_nothing_twice(open_store: OpenStore, address: str, tmp_path: Path) -> None:
    """A whole process is stopped past its session, with wishes under way: the next one does them, once."""
    store = open_store()

    def in_sync() -> bool:
        return all(set(s.isr) == set(PAIRS[n]) for n, s in enumerate(states(store)))

    processes = {
        n: replog.BrokerProcess(n, data=tmp_path / f"b{n}", store=f"zookeeper://{address}", config=QUICK).start() for n in (1, 2, 3)
    }
    try:
        with replog.connect([one.endpoint for one in processes.values()]) as client:
            client.create_topic("t", assignment=PAIRS, min_isr=1)
            client.append("t", 0, ["before"])
            eventually(in_sync)
            first, epoch, old = client.describe_cluster().controller_id, controller_epoch(store), states(store)
            others = [processes[n].endpoint for n in processes if n != first]
        processes[first].pause()
        for number in range(PARTITIONS, PARTITIONS + 4):
            store.commit([replog.ports.Create(layout.partition_add_path("t", number), b'{"version":1,"replicas":null}')])
        with replog.connect(others) as client:
            eventually(lambda: controller_epoch(store) == epoch + 1)
            eventually(lambda: client.partitions_for("t") == list(range(PARTITIONS + 4)))
            eventually(lambda: all(s.leader is not None and first not in s.isr for s in states(store)))
            between = states(store)
            assert [now.leader_epoch - was.leader_epoch for was, now in zip(old, between, strict=True)] == [
                int(was.leader == first) for was in old
            ]
            processes[first].resume()
            eventually(in_sync)
            assert [s.leader_epoch for s in states(store)] == [s.leader_epoch for s in between]
            joined = [int(first in PAIRS[n]) for n in range(PARTITIONS)]  # again, once
            assert [s.partition_epoch for s in states(store)] == [s.partition_epoch + j for s, j in zip(between, joined, strict=True)]
            assert [s.controller_epoch for s in states(store)] == [epoch + j for j in joined]
            assert controller_epoch(store) == epoch + 1
            assert client.describe_cluster().controller_id != first
            topic = store.read(layout.topic_path("t"))
            assert topic is not None
            entry = layout.decode_topic("", topic.value)
            assert sorted(entry.partitions) == list(range(PARTITIONS + 4))
            assert {assignment.creation for assignment in entry.partitions.values()} == {0}
            assert store.list(layout.PARTITIONS_ADD) == []
            assert store.list(layout.REJECTED) == []
            client.append("t", 0, ["after"])
            assert [r.text() for r in client.read("t", partitions=[0])] == ["before", "after"]
    finally:
        for one in processes.values():
            with suppress(replog.ReplogError):
                one.kill()
