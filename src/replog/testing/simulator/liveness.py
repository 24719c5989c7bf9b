"""How a run begins and ends: the cluster comes up, and after the last fault it recovers within bounded virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from replog.client.fetching import FetchOp
from replog.metadata import layout
from replog.testing.simulator.clients import TOPIC
from replog.testing.simulator.ledger import Violation

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["boot", "recover"]

BOOT_MS: Final = 30_000
LEADER_MS: Final = 5_000
"""L1: on top of a session."""
ISR_MS: Final = 20_000
"""L2 and L3: on top of the lag limit."""
PROBE_MS: Final = 5_000
"""L4."""


def boot(world: World) -> None:
    """All brokers start, the topic is made, every partition gets its full ISR. The network is calm meanwhile."""
    world.network.calm = True
    for node in world.nodes.values():
        node.start()
    if not world.run_until(BOOT_MS // 2, lambda: _all_admitted(world)):
        raise Violation("boot", f"not every broker is let in after {BOOT_MS // 2} ms: {world.root.list(layout.BROKER_IDS)}")
    client = next(iter(world.clients.values()))
    op = client.create_topic()
    if not world.run_until(BOOT_MS, lambda: op.done and _all_full(world)):
        raise Violation("boot", f"no topic with a full ISR after {BOOT_MS} ms: {op.error or 'no answer'}")
    if op.error is not None:
        raise Violation("boot", f"the topic was refused: {op.error}")
    world.network.calm = False
    world.note("booted")


def recover(world: World) -> None:
    """Heal everything and wait for each promise in turn, then compare all copies and read everything back."""
    world.heal()
    shape = world.plan.shape
    start = world.now_ms
    if not _wait(world, start + 2 * shape.session_ms + LEADER_MS, _all_led):
        raise Violation("L1", f"no leader: {_states(world)}")
    if not _wait(world, world.now_ms + shape.lag_ms + ISR_MS, _all_full):
        raise Violation("L2", f"the ISR is not full: {_states(world)}")
    probes = [client.probe(partition) for client in world.clients.values() for partition in range(shape.partitions)]
    if not world.run_until(world.now_ms + PROBE_MS, lambda: all(probe.done for probe in probes)):
        raise Violation("L4", f"{sum(not probe.done for probe in probes)} of {len(probes)} probes are not confirmed")
    failed = [str(probe.error) for probe in probes if probe.error is not None]
    if failed:
        raise Violation("L4", f"a probe failed: {failed[0]}")
    if not _wait(world, world.now_ms + ISR_MS, _all_committed):
        raise Violation("L3", f"the high watermark has not reached the end: {_ends(world)}")
    _compare(world)
    _read_back(world)
    world.note("recovered")


def _wait(world: World, until_ms: int, done: Callable[[World], bool]) -> bool:
    return done(world) or world.run_until(until_ms, lambda: done(world))


def _all_admitted(world: World) -> bool:
    """Every broker has heard that all are unfenced."""
    brokers = [node.broker for node in world.nodes.values() if node.broker is not None]
    return all(sum(not known.fenced for known in broker.routing.brokers.values()) == len(world.nodes) for broker in brokers)


def _all_led(world: World) -> bool:
    ledgers = world.checks.ledgers.values()
    return len(ledgers) == world.plan.shape.partitions and all(
        ledger.state is not None and ledger.state.leader is not None for ledger in ledgers
    )


def _all_full(world: World) -> bool:
    """Every assigned replica is in the stored ISR, and the leader knows."""
    if not _all_led(world):
        return False
    for identity, ledger in world.checks.ledgers.items():
        state = ledger.state
        assert state is not None
        if set(state.isr) != set(ledger.replicas) or state.leader is None:
            return False
        broker = world.nodes[state.leader].broker
        partition = None if broker is None else broker.partitions.get(identity)
        if partition is None or partition.leading is None or partition.partition_epoch != state.partition_epoch:
            return False
    return True


def _all_committed(world: World) -> bool:
    """Every copy has the same end, and all of it is committed, as each of them knows."""
    for identity, ledger in world.checks.ledgers.items():
        for broker_id in ledger.replicas:
            broker = world.nodes[broker_id].broker
            partition = None if broker is None else broker.partitions.get(identity)
            if partition is None or partition.log.end_offset != ledger.end or partition.high_watermark != ledger.end:
                return False
    return True


def _compare(world: World) -> None:
    """L5: byte by byte, not by checksums."""
    for identity, ledger in world.checks.ledgers.items():
        bytes_of = {}
        for broker_id in ledger.replicas:
            log = world.nodes[broker_id].directory.get(identity)
            assert log is not None
            bytes_of[broker_id] = b"".join(bytes(piece.view()) for piece in log.read(0, ledger.end, 1 << 40))
        if len(set(bytes_of.values())) > 1:
            raise Violation("L5", f"partition {identity.partition}: copies differ, lengths {[len(b) for b in bytes_of.values()]}")


def _read_back(world: World) -> None:
    """Everything that was ever confirmed can be read, by a client, where it was confirmed."""
    client = next(iter(world.clients.values()))
    for identity, ledger in sorted(world.checks.ledgers.items()):
        values: dict[int, bytes | None] = {}
        offset = 0
        while offset < ledger.end:
            op = FetchOp(TOPIC, identity.partition, offset, max_bytes=1 << 20, wait_ms=0, deadline_ms=world.now_ms + 10_000)
            client.submit(op)
            world.run_until(world.now_ms + 11_000, lambda op=op: op.done)  # type: ignore[misc]
            if op.error is not None or not op.done or op.result.next_offset <= offset:
                raise Violation("readable", f"partition {identity.partition} at {offset} of {ledger.end}: {op.error}")
            values.update((record.offset, record.value) for record in op.result.records)
            offset = op.result.next_offset
        for reader in world.clients.values():
            for told in reader.acknowledged:
                found = [values.get(told.base_offset + n) for n in range(len(told.values))]
                if told.partition == identity.partition and found != told.values:
                    where = f"offset {told.base_offset} of partition {told.partition}"
                    raise Violation("readable", f"confirmed at {where}: {told.values}, read: {found}")


def _states(world: World) -> str:
    found = [f"{identity.partition}: {ledger.state}" for identity, ledger in sorted(world.checks.ledgers.items())]
    seat = world.root.read(layout.CONTROLLER)
    return f"{'; '.join(found)}; controller {None if seat is None else seat.value.decode()}; brokers {world.root.list(layout.BROKER_IDS)}"


def _ends(world: World) -> str:
    told = []
    for identity, ledger in sorted(world.checks.ledgers.items()):
        for broker_id in ledger.replicas:
            broker = world.nodes[broker_id].broker
            partition = None if broker is None else broker.partitions.get(identity)
            told.append(f"{broker_id}: {partition!r}, committed {ledger.end}")
    return "; ".join(told)
