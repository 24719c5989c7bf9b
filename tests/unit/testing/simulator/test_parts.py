"""The parts of a simulated world, each alone: clocks, the network, storage, plans, marks."""

from __future__ import annotations

import random
from itertools import pairwise

import attrs
import pytest

from replog.config import BrokerConfig, TopicConfig
from replog.errors import UsageError
from replog.messages import Fetched, Produced, ProducedEntry
from replog.model import PartitionId, PartitionState
from replog.ports import LogStart
from replog.testing.log_contract import append
from replog.testing.simulator.clocks import NodeClock
from replog.testing.simulator.directions import LONG_MS, draw_directed
from replog.testing.simulator.kinds import DISK, KINDS, LOSSY, MEMORY, length_of, roles_of
from replog.testing.simulator.liveness import boot
from replog.testing.simulator.marks import Marks
from replog.testing.simulator.network import Network, node_of
from replog.testing.simulator.plan import Fault, Plan, Shape, draw
from replog.testing.simulator.storage import FileStorage, MemoryStorage, Storage
from replog.testing.simulator.world import World

PID = PartitionId(bytes(16), 0, 0)


@pytest.mark.parametrize("rate", [1.0, 0.95, 1.05])
def test_a_clock_reads_the_time_it_was_asked_to_wait_for(rate: float) -> None:
    clock = NodeClock(500, rate)
    for world_ms in (0, 7, 1_000, 123_456):
        for wait in (1, 10, 3_000):
            due = clock.now(world_ms) + wait
            delay = clock.delay_until(due, world_ms)
            assert clock.now(world_ms + delay) >= due
            assert clock.now(world_ms + delay - 2) < due
    assert clock.delay_until(0, 1_000) == 1, "what is overdue comes next"
    readings = [clock.now(ms) for ms in range(5_000)]
    assert readings == sorted(readings)


def network(**shape: object) -> Network:
    return Network(attrs.evolve(Shape(), **shape), random.Random(1))


def test_what_a_network_lets_pass() -> None:
    one = network()
    assert [life for _, life in one.passages(1, 2, "x")] == [0]
    one.cut(1, 2, 1, both=False)
    assert one.passages(1, 2, "x") == []
    assert len(one.passages(2, 1, "x")) == 1
    one.cut(1, 2, -1, both=False)
    assert len(one.passages(1, 2, "x")) == 1
    one.isolate(3, 1)
    assert one.passages(3, 1, "x") == one.passages(("client", 1), 3, "x") == []
    assert one.passages(3, node_of(("controller", 3)), "x") == [(0, 0)], "whoever is isolated reaches itself"
    one.lag(2, 1)
    assert one.passages(1, 2, Fetched(1, 0, 0, 0, [])) == []
    assert len(one.passages(1, 2, "x")) == 1
    one.heal()
    assert len(one.passages(3, 2, Fetched(1, 0, 0, 0, []))) == 1
    assert one.lost == 4


def test_a_connection_that_breaks_takes_with_it_what_is_on_the_way() -> None:
    one = network()
    ((_, life),) = one.passages(1, 2, "x")
    one.reset(3)
    assert one.link_life(1, 2) == life
    one.reset(2)
    assert one.link_life(1, 2) != life
    assert one.passages(1, 2, "x")[0][1] == one.link_life(1, 2)


def test_a_network_repeats_and_delays() -> None:
    one = network(repeat=0.5, slow=0.2, slow_ms=5_000, delay_ms=3)
    delays = [delay for _ in range(300) for delay, _ in one.passages(1, 2, "x")]
    assert len(delays) > 400
    assert 30 < sum(delay > 3 for delay in delays) < 200
    one = network(delay_ms=3, slow_ms=5_000)
    one.slow(1, 2, 1)
    assert max(delay for _ in range(20) for delay, _ in one.passages(2, 1, "x")) > 100
    one.slow(1, 2, -1)
    assert max(delay for _ in range(20) for delay, _ in one.passages(2, 1, "x")) <= 3


def storages(flush: str) -> list[Storage]:
    made: list[Storage] = []
    for kind in (MemoryStorage, FileStorage):
        storage = kind(BrokerConfig(), random.Random(3))
        (log,) = storage.directory.create([LogStart(PID, "t", TopicConfig(flush=flush))])  # type: ignore[arg-type]
        log.start_epoch(1) if hasattr(log, "start_epoch") else None
        append(log, 3)
        made.append(storage)
    return made


@pytest.mark.parametrize(("how", "left"), [("kill", 3), ("clean", 3), ("wipe", None)])
def test_what_a_storage_has_left(how: str, left: int | None) -> None:
    for storage in storages("os"):
        identity = storage.directory.directory_id
        storage.end(how)
        log = storage.directory.get(PID)
        assert (None if log is None else log.end_offset) == left
        assert (storage.directory.directory_id == identity) == (how != "wipe")


def test_a_machine_is_put_back_to_what_the_process_before_left() -> None:
    memory, files = storages("os")
    assert not memory.has_image
    assert not files.has_image, "nobody has left anything yet"
    first = files.directory.incarnation
    files.end("kill")
    second = files.directory.incarnation
    log = files.directory.get(PID)
    assert log is not None
    append(log, 2)
    assert files.has_image
    files.end("restore")
    log = files.directory.get(PID)
    assert log is not None
    assert log.end_offset == 3
    assert files.directory.loss.kind == "process", "it does not know"
    assert files.directory.loss.lives == (first,), "but which life it goes on from, and that is not the last one"
    assert files.directory.incarnation not in (first, second)
    files.end("wipe")
    assert not files.has_image, "of another disk"


def test_a_power_cut_keeps_what_was_flushed() -> None:
    for storage in storages("os"):
        log = storage.directory.get(PID)
        assert log is not None
        token = log.flush()
        assert token is not None
        log.flushed(token.run())
        append(log, 2)
        storage.end("power")
        after = storage.directory.get(PID)
        assert after is not None
        assert 3 <= after.end_offset <= 5
        assert storage.directory.loss.kind == "power"
        assert PID in storage.directory.loss.lossy


def test_memory_can_be_full_and_fail_to_flush_and_nothing_else() -> None:
    storage = storages("os")[0]
    assert [kind for kind in KINDS if storage.arm(kind)] == sorted(MEMORY, key=list(KINDS).index)
    log = storage.directory.get(PID)
    assert log is not None
    token = log.flush()
    assert token is not None
    assert token.run().error is not None


def test_files_can_have_every_fault_of_a_disk() -> None:
    storage = storages("os")[1]
    for kind in DISK:
        assert storage.flip() if kind == "flip" else storage.arm(kind)
        storage.disarm(kind) if kind != "flip" else None


def test_a_plan_keeps_to_what_its_cluster_promises() -> None:
    seen = set()
    for seed in range(400):
        plan = draw(seed)
        shape, kinds = plan.shape, {fault.kind for fault in plan.faults}
        seen |= kinds
        assert shape.replicas <= shape.brokers
        assert shape.min_isr <= shape.replicas
        assert kinds <= set(KINDS)
        if shape.min_isr < 2:
            assert not kinds & (set(LOSSY) - {"power_all"})
        if "power_all" in kinds:
            assert shape.flush == "ack"
        if not shape.files:
            assert not kinds & (set(DISK) - set(MEMORY))
        assert [fault.at_ms for fault in plan.faults] == sorted(fault.at_ms for fault in plan.faults)
    assert seen == set(KINDS) - {"strand"}  # only where elections may lose something


def test_every_kind_has_a_length_and_somebody_to_befall() -> None:
    chance = random.Random(1)
    for kind in KINDS:
        assert roles_of(kind)
        assert all(0 <= length_of(chance, kind, Shape()) <= 10_000 for _ in range(50))


def test_a_long_run_is_an_hour_with_a_fault_a_minute() -> None:
    for seed in range(30):
        plan = draw_directed(seed, "long")
        assert plan.safety_ms == LONG_MS == 3_600_000
        times = [fault.at_ms for fault in plan.faults]
        assert len(times) == 59
        assert all(60_000 <= after - before < 61_000 for before, after in pairwise([0, *times]))
        assert {fault.kind for fault in plan.faults} == {fault.kind for fault in draw(seed).faults[:59]}


@pytest.mark.parametrize("direction", ["power-all", "power-some"])
def test_a_series_has_the_losses_that_its_bar_names(direction: str) -> None:
    plans = [draw_directed(seed, direction) for seed in range(60)]
    kinds = [{fault.kind for fault in plan.faults} for plan in plans]
    wanted = direction.replace("-", "_")
    assert sum(wanted in found for found in kinds) > 50
    assert not set().union(*kinds) & (set(LOSSY) - {"power", wanted})
    assert {plan.shape.flush for plan in plans} == {"ack" if direction == "power-all" else "os"}
    if direction == "power-some":
        assert {plan.shape.min_isr for plan in plans} == {2, 3}


def test_a_series_that_there_is_not() -> None:
    with pytest.raises(UsageError, match=r"power-al.*power-all"):
        draw_directed(1, "power-al")


@pytest.mark.parametrize(("flush", "lost"), [("os", 2), ("ack", 5)])
def test_power_fails_for_as_many_as_may_be_lost(flush: str, lost: int) -> None:
    shape = Shape(brokers=5, replicas=5, min_isr=3, flush=flush)
    world = World(Plan(1, shape, (Fault(10, "power_some", "all", 400),), 600))
    boot(world)
    world.nemesis.begin()
    world.run_until(world.now_ms + 10)
    assert world.nemesis.befallen == {"power_some": 1}
    assert sum(not node.alive for node in world.nodes.values()) == lost


def test_a_directed_plan_has_its_kinds_alone() -> None:
    plan = draw(5, only=("kill", "lag"), brokers=3, replicas=3)
    assert {fault.kind for fault in plan.faults} == {"kill", "lag"}
    assert plan.shape.brokers == 3
    assert draw(5).faults != plan.faults
    assert draw(5) == draw(5)


def state(**fields: object) -> PartitionState:
    return attrs.evolve(PartitionState(leader=1, leader_epoch=3, isr=(1, 2), controller_epoch=1, partition_epoch=4), **fields)


@pytest.mark.parametrize(
    ("after", "marks"),
    [
        (state(isr=(1, 2, 3)), ["the ISR grows"]),
        (state(isr=(1,), elr=(2,)), ["the ISR shrinks", "the ISR shrinks to one", "a replica stays eligible outside the ISR"]),
        (state(isr=(1, 3)), ["the ISR changes both ways at once"]),
        (state(leader=2, leader_epoch=4), ["the lead passes on"]),
        (state(leader=None), ["a partition loses its leader and gets none"]),
        (state(leader_epoch=4), ["the same leader gets a new epoch"]),
        (state(recovering=True, leader=3), ["the lead passes on", "an election may have lost something"]),
        (state(), []),
    ],
)
def test_marks_of_a_stored_state(after: PartitionState, marks: list[str]) -> None:
    seen = Marks()
    seen.stored(state(), after)
    assert list(seen.hits) == marks
    seen.stored(None, after)
    assert list(seen.hits) == marks


def test_marks_of_refusals() -> None:
    seen = Marks()
    seen.sent(Produced([ProducedEntry(1, 6, -1), ProducedEntry(2, 0, 5)]))
    seen.sent("something else")
    assert seen.hits == {"Produced says NotLeaderOrFollower": 1}
