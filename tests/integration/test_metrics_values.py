"""Each metric says what is so: what it shows is made to happen in a cluster, and its value is looked at before, during and after."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.log.files import OS, Fs
from replog.messages import AlterIsr
from replog.metadata import layout
from replog.metrics.meter import Meter
from replog.metrics.watching import StoreWatch
from replog.model import Address
from replog.ports import Conflict, Outbox, Put, SessionLost, StoreCall, StoreResult
from replog.runtime.pump import Pump
from replog.runtime.seat import Seat
from replog.testing.disk import FaultyFs

SECOND = 1_000


Passes = Callable[[int], None]
"""Lets so many ms pass, and has everybody do what is due then."""


@contextmanager
def frozen(brokers: int = 3, **more: Any) -> Iterator[tuple[replog.Cluster, Passes]]:
    """A cluster in which time passes only when somebody says so."""
    cluster, now = replog.Cluster(brokers=brokers, **more), [1_000_000]

    def passes(ms: int) -> None:
        now[0] += ms
        cluster._embedded.run()

    pump_of(cluster).now_ms = lambda: now[0]
    with cluster:
        yield cluster, passes


def pump_of(cluster: replog.Cluster) -> Pump:
    return cluster._embedded._pump


class Held:
    """In the place of an actor: messages of these kinds wait; with none named everything does, and it does nothing by itself."""

    def __init__(self, seat: Seat, *kinds: type) -> None:
        self.outbox = seat.actor.outbox if kinds else Outbox()
        self.kept: list[tuple[Address, Any]] = []
        self._actor, self._kinds = seat.actor, kinds

    def receive(self, sender: Address, message: Any, now_ms: int) -> None:
        if not self._kinds or isinstance(message, self._kinds):
            self.kept.append((sender, message))
        else:
            self._actor.receive(sender, message, now_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        if self._kinds:
            self._actor.tick(now_ms, wall_ms)

    def deadline_ms(self) -> int | None:
        return self._actor.deadline_ms() if self._kinds else None


@contextmanager
def held(cluster: replog.Cluster, address: Address, *kinds: type) -> Iterator[Held]:
    """What is for an actor waits until the block ends, and is delivered then."""
    pump = pump_of(cluster)
    seat = pump._seats[address]
    stand_in = Held(seat, *kinds)
    pump._seats[address] = standing = Seat(address, stand_in, seat.store)
    try:
        yield stand_in
    finally:
        standing.alive = False
        pump._seats[address] = seat
        for sender, message in stand_in.kept:
            pump.post(address, message, sender)
        pump.touch(seat)
        cluster._embedded.run()


def value(cluster: replog.Cluster, name: str, **labels: object) -> float:
    return cluster.metrics(partitions=True).value(f"replog_{name}", **labels)


def values(cluster: replog.Cluster, name: str, brokers: int = 3, **labels: object) -> list[float]:
    """Of each broker."""
    found = cluster.metrics(partitions=True)
    return [found.value(f"replog_{name}", broker=broker, **labels) for broker in range(1, brokers + 1)]


# ---------------------------------------------------------------------------------------------------------------- what waits


def test_waiting_appends_are_those_that_wait_for_replicas() -> None:
    with frozen() as (cluster, _):
        cluster.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=2)
        with cluster.producer(acks="all", linger_ms=0) as producer:
            producer.send("t", "before", partition=0).result()  # the leader knows the producer from now on
            assert values(cluster, "waiting_appends") == [0, 0, 0]
            with held(cluster, 2):
                for count in (1, 2, 3):
                    producer.send("t", f"waits {count}", partition=0)
                    cluster._embedded.run()
                    assert values(cluster, "waiting_appends") == [count, 0, 0]
                cluster.append("t", 0, ["does not wait"], acks=1)
                assert values(cluster, "waiting_appends") == [3, 0, 0]
            assert values(cluster, "waiting_appends") == [0, 0, 0]
        assert len(list(cluster.read("t"))) == 5


def test_waiting_fetches_are_those_of_followers_and_readers_that_wait_for_records() -> None:
    with frozen() as (cluster, passes):
        assert values(cluster, "waiting_fetches") == [0, 0, 0]
        cluster.create_topic("alone", assignment={0: [1]}, min_isr=1)
        assert values(cluster, "waiting_fetches") == [0, 0, 0]
        with cluster.consumer("alone") as consumer:
            assert list(consumer.poll(timeout_s=0)) == []
            assert values(cluster, "waiting_fetches") == [1, 0, 0]
            cluster.append("alone", 0, ["a"])
            assert values(cluster, "waiting_fetches") == [0, 0, 0]
            assert [record.value for record in consumer.poll(timeout_s=0)] == [b"a"]
        cluster.create_topic("t", assignment={0: [2, 1, 3]}, min_isr=2)
        cluster.append("t", 0, ["a"])
        assert values(cluster, "waiting_fetches")[1] == 2
        with held(cluster, 3):
            passes(SECOND)  # its fetch was answered meanwhile, and it does not ask again
            assert values(cluster, "waiting_fetches")[1] == 1
        assert values(cluster, "waiting_fetches")[1] == 2
        cluster.kill_broker(3)
        assert values(cluster, "waiting_fetches")[1] == 1


def test_controller_queue_events_are_those_that_the_controller_has_yet_to_decide() -> None:
    with replog.Cluster(brokers=3) as cluster:
        controller, pump = cluster.controller_id, pump_of(cluster)
        assert values(cluster, "controller_queue_events") == [0, 0, 0]
        seat = pump._seats["controller", controller]
        calls: list[StoreCall] = []
        seat.calls = lambda _, call: calls.append(call)  # a store that does not answer
        for count in (1, 2, 3):
            with pytest.raises(replog.TimedOut):
                cluster.create_topic(f"t{count}", timeout_s=0.01)
            assert values(cluster, "controller_queue_events") == [count if b == controller else 0 for b in (1, 2, 3)]
        seat.calls = None
        for call in calls:
            pump._call(seat, call)
        cluster._embedded.run()
        assert values(cluster, "controller_queue_events") == [0, 0, 0]
        assert cluster.topics() == ["t1", "t2", "t3"]


# --------------------------------------------------------------------------------------------------------------- what is refused


def test_isr_updates_refused_are_counted_where_they_were_proposed() -> None:
    with frozen() as (cluster, passes):
        cluster.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=2)
        cluster.kill_broker(3)
        cluster.append("t", 0, ["a"])
        with held(cluster, ("controller", cluster.controller_id), AlterIsr) as late:
            cluster.start_broker(3)
            cluster._embedded.run()
            assert [(sender, [b for b, _ in entry.isr]) for sender, m in late.kept for entry in m.entries] == [(1, [1, 2, 3])]
            assert values(cluster, "isr_updates_refused_total") == [0, 0, 0]
            cluster.kill_broker(3)  # whoever was to join is gone when it is decided
        assert values(cluster, "isr_updates_refused_total") == [1, 0, 0]
        cluster.start_broker(3)
        while cluster._embedded.out_of_sync():  # the leader proposes again after a pause
            passes(100)
        assert values(cluster, "isr_updates_refused_total") == [1, 0, 0]  # what is granted is not refused
        assert value(cluster, "isr_expands_total") == 1


def test_store_conflicts_are_transactions_that_the_store_refused() -> None:
    with frozen() as (cluster, _):
        cluster.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=2)
        cluster.kill_broker(3)
        controller, before = cluster.controller_id, values(cluster, "store_conflicts_total")  # they stood for controller when they started
        store, path = cluster._embedded._store, layout.partition_state_path("t", 0)
        found = store.read(path)
        store.commit([Put(path, found.value, found.version)])  # somebody meddles
        cluster.start_broker(3)
        cluster.wait_until_in_sync()
        added = [now - was for now, was in zip(values(cluster, "store_conflicts_total"), before, strict=True)]
        assert added == [1 if broker == controller else 0 for broker in (1, 2, 3)]


def test_of_transactions_that_go_together_each_conflict_counts() -> None:
    class Quiet:
        outbox = Outbox()

        def receive(self, sender: Address, message: Any, now_ms: int) -> None: ...
        def tick(self, now_ms: int, wall_ms: int) -> None: ...
        def deadline_ms(self) -> None: ...

    actor, meter = Quiet(), Meter(1)
    watch = StoreWatch(actor, meter)
    for call, (verb, value_, error, conflicts) in enumerate(
        [
            ("commit", [7], None, 0),
            ("commit", None, Conflict("/a"), 1),
            ("commit", None, SessionLost("gone"), 1),
            ("commit_each", [[1], Conflict("/b"), [2], Conflict("/c")], None, 3),
            ("read", None, Conflict("/d"), 3),
        ]
    ):
        actor.outbox.calls.append(StoreCall(call, verb, None))
        watch.tick(0, 0)
        actor.outbox.calls.clear()
        watch.receive(None, StoreResult(call, value_, error), 0)
        assert meter.conflicts == conflicts


# ------------------------------------------------------------------------------------------------------------------- partitions


class BrokenDisk:
    """The real files, which refuse what is written to logs while they are broken."""

    def __init__(self) -> None:
        self.broken = False
        self.fs = FaultyFs(OS, self._before)

    def _before(self, operation: str, path: str) -> None:
        if self.broken and operation == "write" and path.endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_failed_partitions_are_copies_given_up_until_the_broker_is_started_again(tmp_path: Path) -> None:
    disk = BrokenDisk()

    def fs_of(broker_id: int) -> Fs:
        return disk.fs if broker_id == 3 else OS

    with replog.Cluster(tmp_path / "data", brokers=3, _fs_of=fs_of, config={"replica_lag_ms_max": 200}) as cluster:
        cluster.create_topic("t", assignment={0: [1, 2, 3], 1: [1, 3, 2], 2: [2, 1, 3]}, min_isr=2)
        for partition in range(3):
            cluster.append("t", partition, ["a"])
        assert values(cluster, "failed_partitions") == [0, 0, 0]
        disk.broken = True
        cluster.append("t", 0, ["b"])
        assert values(cluster, "failed_partitions") == [0, 0, 1]
        cluster.append("t", 1, ["b"])
        disk.broken = False
        cluster.append("t", 2, ["b"])
        assert values(cluster, "failed_partitions") == [0, 0, 2]
        assert values(cluster, "partitions") == [3, 3, 3]
        cluster.kill_broker(3)
        assert values(cluster, "failed_partitions") == [0, 0, 0]
        cluster.start_broker(3)
        cluster.wait_until_in_sync()
        assert values(cluster, "failed_partitions") == [0, 0, 0]


def test_a_move_shows_how_many_partitions_it_has_left_and_how_far_the_joining_copies_are_behind() -> None:
    with frozen(brokers=4) as (cluster, _):
        cluster.create_topic("t", assignment={0: [1, 2], 1: [2, 1], 2: [2, 1]}, min_isr=1)
        cluster.append("t", 0, [str(n) for n in range(50)])
        cluster.append("t", 1, [str(n) for n in range(7)])
        cluster.stop_broker(4)

        def moving() -> tuple[list[float], list[float]]:
            return values(cluster, "reassigning_partitions", 4), values(cluster, "reassignment_lag_records", 4)

        assert moving() == ([0, 0, 0, 0], [0, 0, 0, 0])
        cluster.reassign({("t", 0): [1, 4], ("t", 1): [2, 4]})
        assert moving() == ([1, 1, 0, 0], [50, 7, 0, 0])
        cluster.append("t", 0, ["one more"])
        assert moving() == ([1, 1, 0, 0], [51, 7, 0, 0])
        cluster.reassign({("t", 1): None})
        assert moving() == ([1, 0, 0, 0], [51, 0, 0, 0])
        cluster.kill_broker(2)  # behind it is from now on, but it does not join
        cluster.append("t", 0, ["and one"])
        assert moving() == ([1, 0, 0, 0], [52, 0, 0, 0])
        cluster.start_broker(4)
        cluster._embedded.run()
        assert cluster.reassignments() == []
        assert moving() == ([0, 0, 0, 0], [0, 0, 0, 0])


def test_replica_lag_seconds_are_those_since_a_copy_was_caught_up() -> None:
    with frozen() as (cluster, passes):
        cluster.create_topic("t", assignment={0: [1, 2, 3]}, min_isr=1)
        cluster.append("t", 0, ["a"])

        def lags() -> list[float]:
            return values(cluster, "replica_lag_seconds", topic="t", partition=0)

        passes(2 * SECOND)
        assert lags() == [0, 0, 0]
        with held(cluster, 2):  # it stands still
            passes(SECOND)
            assert lags() == [0, 0, 0]  # nothing is missing
            cluster.append("t", 0, ["b"], acks=1)
            assert lags() == [0, 1, 0]  # since its last sign of life
            passes(4 * SECOND)
            assert lags() == [0, 5, 0]
            assert values(cluster, "replica_max_lag_seconds") == [5, 0, 0]
        assert lags() == [0, 0, 0]
        cluster.kill_broker(3)
        passes(3 * SECOND)
        assert lags() == [0, 0, 3]  # what it had is perhaps not there when it is back
        cluster.append("t", 0, ["c"])
        passes(4 * SECOND)
        assert lags() == [0, 0, 7]
        assert values(cluster, "replica_max_lag_seconds") == [7, 0, 0]
        cluster.start_broker(3)
        cluster.wait_until_in_sync()
        assert lags() == [0, 0, 0]
        assert values(cluster, "replica_max_lag_seconds") == [0, 0, 0]


def test_log_start_offset_is_where_each_copy_begins(tmp_path: Path) -> None:
    with frozen(data=tmp_path / "data", config={"retention_check_ms": 100}) as (cluster, passes):
        cluster.create_topic("t", assignment={0: [1, 2]}, min_isr=1, segment_bytes=1_000, retention_bytes=2_000)
        cluster.create_topic("kept", assignment={0: [1, 2]}, min_isr=1, segment_bytes=1_000)

        def starts(topic: str) -> list[float]:
            return values(cluster, "log_start_offset", topic=topic, partition=0)

        for topic in ("t", "kept"):
            for _ in range(10):
                cluster.append(topic, 0, [os.urandom(900), b"y"])
        assert starts("t") == starts("kept") == [0, 0, 0]
        passes(SECOND)
        first = next(iter(cluster.read("t")))
        assert starts("t") == [first.offset, first.offset, 0]
        assert first.offset > 0
        assert starts("kept") == [0, 0, 0]
