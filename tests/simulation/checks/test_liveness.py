"""Each promise is missed where something keeps it from being kept, and kept otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from tests.simulation.checks.situations import booted, violates

from replog.broker.broker import Broker
from replog.config import TopicConfig
from replog.errors import LogCorrupt
from replog.metadata import layout
from replog.metadata.memory import MemoryStore
from replog.model import Assignment, PartitionId
from replog.partition.isr import PendingShrink
from replog.ports import Create, LogStart
from replog.testing.simulator import liveness
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.liveness import (
    CopiesAreEqual,
    EveryPartitionIsLed,
    IsrsAreFull,
    MovesEnd,
    NothingIsLeftOver,
    ProbesAreConfirmed,
    Promise,
    WatermarksMove,
    WatermarksReachTheEnd,
    recover,
)
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation
STRANGE = PartitionId(b"s" * 16, 0, 0)


def filled(**shape: Any) -> World:
    """A cluster with a record everywhere."""
    world = booted(drop=0.0, repeat=0.0, slow=0.0, delay_ms=3, unsure=0.0, **shape)
    probe = next(iter(world.clients.values())).probe(0)
    assert world.run_until(world.now_ms + 5_000, lambda: probe.done)
    world.run_until(world.now_ms + 1_000)
    return world


def no_leader(world: World) -> None:
    ledger = next(iter(world.checks.ledgers.values()))
    assert ledger.state is not None
    ledger.state = evolve(ledger.state, leader=None)


def short_isr(world: World) -> None:
    ledger = next(iter(world.checks.ledgers.values()))
    assert ledger.state is not None
    ledger.state = evolve(ledger.state, isr=ledger.state.isr[:2])


def a_move(world: World) -> None:
    ledger = next(iter(world.checks.ledgers.values()))
    ledger.assignment = Assignment(ledger.replicas, adding=ledger.replicas[:1], original=ledger.replicas[1:])


def a_wish_to_move(world: World) -> None:
    row, listed = layout.PARTITIONS_REASSIGNED, world.root.list
    wishes = {row: ["t"], f"{row}/t": ["0"]}
    world.root.list = lambda path: wishes.get(path) or listed(path)  # type: ignore[method-assign]


def late_leader(world: World) -> None:
    ledger = next(iter(world.checks.ledgers.values()))
    assert ledger.state is not None
    ledger.state = evolve(ledger.state, partition_epoch=ledger.state.partition_epoch + 1)


def low_watermark(world: World) -> None:
    follower = next(node for node in world.nodes.values() if node.broker is not None and not leads(node.broker))
    assert follower.broker is not None
    world.network.isolate(follower.broker_id, 1)
    for partition in follower.broker.partitions.values():
        partition.high_watermark = 0


def leads(broker: Broker) -> bool:
    return any(partition.leading is not None for partition in broker.partitions.values())


def silent_clients(world: World) -> None:
    for one in world.clients:
        world.network.isolate(one, 1)


def other_bytes(world: World) -> None:
    frames = copy_log(world)._frames
    frames[0] = frames[0][:-1] + bytes([frames[0][-1] ^ 1])


def copy_log(world: World) -> Any:
    return world.nodes[1].directory.get(next(iter(world.checks.ledgers)))


def pending(world: World) -> None:
    ledger = next(iter(world.checks.ledgers.values()))
    assert ledger.state is not None
    assert ledger.state.leader is not None
    broker = world.nodes[ledger.state.leader].broker
    assert broker is not None
    leading = broker.partitions[ledger.identity].leading
    assert leading is not None
    leading.isr = PendingShrink(leading.isr.isr, ())


def keeps_a_log(world: World) -> None:
    """A log of a topic that the store does not know."""
    world.nodes[1].directory.create([LogStart(STRANGE, "strange", TopicConfig())])


def keeps_a_quarantine(world: World) -> None:
    keeps_a_log(world)
    world.nodes[1].directory.quarantine(STRANGE, world.wall_ms + 30 * 60_000)  # its clock has jumped since
    NothingIsLeftOver().keep(world)
    world.nodes[1].wall_offset_ms = 40 * 60_000
    world.nodes[1].directory.purge_each = lambda identities: None  # type: ignore[method-assign]


def keeps_a_deletion(world: World) -> None:
    MemoryStore.commit(world.root, [Create(layout.removed_path(bytes(16)), layout.encode_removed((2,)))])


_MISSED = (
    (MovesEnd, a_move, "L6"),
    (MovesEnd, a_wish_to_move, "L6"),
    (EveryPartitionIsLed, no_leader, "L1"),
    (IsrsAreFull, short_isr, "L2"),
    (IsrsAreFull, late_leader, "L2"),
    (WatermarksMove, low_watermark, "L3"),
    (WatermarksReachTheEnd, low_watermark, "L3"),
    (ProbesAreConfirmed, silent_clients, "L4"),
    (CopiesAreEqual, other_bytes, "L5"),
    (NothingIsLeftOver, pending, "L7"),
    (NothingIsLeftOver, keeps_a_log, "L7"),
    (NothingIsLeftOver, keeps_a_quarantine, "L7"),
    (NothingIsLeftOver, keeps_a_deletion, "L7"),
)


@pytest.mark.parametrize(("promise", "spoil", "name"), _MISSED, ids=[spoil.__name__ for _, spoil, _ in _MISSED])
def test_a_promise_is_kept_or_missed(promise: type[Promise], spoil: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    promise().keep(filled())
    for limit in ("LEADER_MS", "ISR_MS", "PROBE_MS", "IDLE_MS"):
        monkeypatch.setattr(liveness, limit, 1_000)
    world = filled()
    world.root.commit = lambda ops: None  # type: ignore[method-assign, assignment, return-value]  # nothing heals by itself
    spoil(world)
    violates(name, promise().keep, world)


def test_l5_a_copy_that_a_disk_has_spoiled_is_left_out_while_an_intact_one_is_there() -> None:
    world = filled()
    other_bytes(world)
    world.checks.tampered(1, None)
    CopiesAreEqual().keep(world)


def test_l5_a_copy_whose_answer_ends_in_front_of_damage_is_asked_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled()
    probe = next(iter(world.clients.values())).probe(0)
    assert world.run_until(world.now_ms + 5_000, lambda: probe.done)
    world.run_until(world.now_ms + 1_000)
    log = copy_log(world)
    read, end = log.read, log.end_offset
    assert end > 1

    def read_in_front(offset: int, limit: int, max_bytes: int) -> Any:
        if offset >= end - 1:
            raise LogCorrupt("damaged")
        return read(offset, min(limit, end - 1), max_bytes)

    monkeypatch.setattr(log, "read", read_in_front)
    violates("L5", CopiesAreEqual().keep, world)
    world.checks.tampered(1, None)
    CopiesAreEqual().keep(world)


def test_l8_the_rest_goes_on_without_a_broker_that_stays_out() -> None:
    world = filled()
    world.nodes[1].end("wipe")
    world.nodes[1].start = lambda: None
    world.absent = frozenset({1})
    recover(world)
    world.nodes[2].kill()
    world.nodes[2].start = lambda: None
    with pytest.raises(Violation) as caught:
        recover(world)
    assert caught.value.invariant == "L8"
