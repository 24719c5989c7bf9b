"""How a run begins and ends: the cluster comes up, and after the last fault it keeps its promises within bounded virtual time.

The promises are those of RELIABILITY.md 6.5, kept one after the other, each a class: L1 to L7. L8 is all of them
while some brokers stay out (`world.absent`, see `absence`): a promise that is broken then is reported as L8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final

from replog.client.fetching import FetchOp
from replog.client.unpacking import unpack_all
from replog.controller.changes import HiddenSet
from replog.errors import OffsetOutOfRange
from replog.metadata import layout
from replog.model import PartitionId
from replog.partition.isr import Committed
from replog.partition.partition import Partition
from replog.testing.simulator.clients import TOPIC
from replog.testing.simulator.copying import Patience
from replog.testing.simulator.ledger import Ledger, Violation
from replog.testing.simulator.spoiled import bytes_of, is_spoiled
from replog.testing.simulator.waiting import waits_rightly

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node
    from replog.testing.simulator.plan import Shape
    from replog.testing.simulator.world import World

__all__ = ["PROMISES", "Promise", "boot", "keep_promises", "lives_are_known", "recover"]

BOOT_MS: Final = 30_000
LEADER_MS: Final = 5_000
"""L1: on top of two sessions."""
ISR_MS: Final = 10_000
"""L2, on top of the lag limit, and L3: as RELIABILITY 6.5 says."""
PROBE_MS: Final = 5_000
"""L4: to be confirmed, and again to be read. RELIABILITY says 1 s of a cluster that is at rest; see `ProbesAreConfirmed`."""
IDLE_MS: Final = 30_000
"""L7: on top of what clients may take to give up."""
_STEP_MS: Final = 20


class Promise(ABC):
    """Something that becomes true soon after the last fault."""

    name: ClassVar[str] = ""
    """As RELIABILITY.md 6.5 counts them."""
    source: ClassVar[str] = ""
    protocol: ClassVar[tuple[str, ...]] = ()
    """What PROTOCOL.md 9.2 calls it."""
    copies: ClassVar[bool] = False
    """Whether records may have to be copied first: that takes longer the more there are."""

    def begin(self, world: World) -> None:
        """The time runs from now."""
        return

    @abstractmethod
    def limit_ms(self, shape: Shape) -> int:
        """So long it may take."""

    @abstractmethod
    def missing(self, world: World) -> Iterator[str]:
        """What is not as it should be now, in words."""

    def keep(self, world: World) -> None:
        """Let time pass until nothing is missing; raise `Violation` if something still is at the limit."""
        self.begin(world)
        begun_ms, limit_ms = world.now_ms, self.limit_ms(world.plan.shape)
        end_ms = begun_ms + limit_ms
        patience, patience_ms = Patience(world) if self.copies else None, EveryPartitionIsLed().limit_ms(world.plan.shape)
        while self._lacks(world):
            if patience is not None:
                patience.look(world)
                end_ms = max(end_ms, begun_ms + limit_ms + patience.ms)
            if world.now_ms >= end_ms and patience_ms and any(_unregistered(world)):
                # A disk that turns out to be spoiled only now is replaced meanwhile, and its broker waits as L1 says: once more that time.
                end_ms, patience_ms = world.now_ms + patience_ms, 0
            if world.now_ms >= end_ms:
                name = "L8" if world.absent else self.name
                raise Violation(name, f"{(self.__doc__ or '').splitlines()[0]} Not so: {'; '.join(self.missing(world))}")
            world.run_until(min(world.now_ms + _STEP_MS, end_ms))

    def _lacks(self, world: World) -> bool:
        return next(self.missing(world), None) is not None


def _unread(world: World) -> Iterator[str]:
    """What was refused is found again with the next `reconcile`: until then a controller leaves out what it could not read."""
    for node in world.nodes.values():
        term = None if node.controller is None else node.controller._term
        if term is not None and term.cluster.hidden != HiddenSet():
            yield f"controller {node.broker_id} could not read {term.cluster.hidden}"


def _unregistered(world: World) -> Iterator[str]:
    for broker_id, node in world.nodes.items():
        if broker_id not in world.absent and (node.broker is None or node.broker.broker_epoch < 0):
            yield f"broker {broker_id} is not registered"


class EveryPartitionIsLed(Promise):
    """Every broker is registered, and every partition has a leader: within two sessions and five seconds.

    A broker whose disk was replaced waits for the session of its last life to end: nobody can tell it from a second process.
    """

    name = "L1"
    source = "RELIABILITY 6.5; R18"
    protocol = ("L1",)

    def limit_ms(self, shape: Shape) -> int:
        return 2 * shape.session_ms + LEADER_MS

    def missing(self, world: World) -> Iterator[str]:
        yield from _unregistered(world)
        yield from _unread(world)
        for ledger in _partitions(world):
            if (ledger.state is None or ledger.state.leader is None) and not waits_rightly(world, ledger):
                yield f"{_name(ledger)} has {ledger.state}"


class IsrsAreFull(Promise):
    """Every assigned replica that lives is in the stored ISR, nothing is recovering, and the leader knows it: within the lag limit and ten
    seconds.

    Copying is on top of that (`copying`), which RELIABILITY leaves out: a link of 50 ms carries one fetch of a kilobyte at a time.
    """

    name = "L2"
    copies = True
    source = "RELIABILITY 6.5; KAFKA-15083"
    protocol = ("L4", "L2")

    def limit_ms(self, shape: Shape) -> int:
        return shape.lag_ms + ISR_MS

    def missing(self, world: World) -> Iterator[str]:
        for ledger in _partitions(world):
            state = ledger.state
            if waits_rightly(world, ledger):
                continue
            if state is None or state.leader is None or state.recovering or set(state.isr) != set(_living(world, ledger)):
                yield f"{_name(ledger)} of replicas {ledger.replicas} has {state}"
                continue
            leader = _partition(world, state.leader, ledger.identity)
            if leader is None or leader.leading is None or leader.partition_epoch != state.partition_epoch:
                yield f"{_name(ledger)} is at partition epoch {state.partition_epoch}, its leader is {leader!r}"


class MovesEnd(Promise):
    """Reassignments are complete or cancelled, and their wishes are gone, unless the target is away."""

    name = "L6"
    copies = True
    source = "RELIABILITY 6.5; KIP-455"
    protocol = ("L6",)

    def limit_ms(self, shape: Shape) -> int:
        return shape.lag_ms + ISR_MS

    def missing(self, world: World) -> Iterator[str]:
        for ledger in _partitions(world):
            if ledger.assignment is not None and ledger.assignment.original and world.absent.isdisjoint(ledger.replicas):
                yield f"{_name(ledger)} is still moving: {ledger.assignment}, {ledger.state}"
        if not world.absent:
            for topic in world.root.list(layout.PARTITIONS_REASSIGNED):
                wishes = world.root.list(f"{layout.PARTITIONS_REASSIGNED}/{topic}")
                yield from (f"there is a wish to move {topic}-{number}" for number in wishes)


class WatermarksMove(Promise):
    """What is committed when this begins every copy has, and knows to be committed, within ten seconds, whatever is appended meanwhile."""

    name = "L3"
    copies = True
    source = "RELIABILITY 6.5; KAFKA-9952"
    protocol = ("L7",)

    def begin(self, world: World) -> None:
        """Note where that ends."""
        self._ends = {ledger.identity: ledger.end for ledger in _partitions(world)}

    def limit_ms(self, shape: Shape) -> int:
        return ISR_MS

    def missing(self, world: World) -> Iterator[str]:
        for ledger, broker, copy in _living_copies(world):
            end = self._ends.get(ledger.identity, 0)
            if end and (copy is None or copy.high_watermark < end):
                yield f"on broker {broker}: {copy!r} of {_name(ledger)}, committed {end}"


class WatermarksReachTheEnd(Promise):
    """Every copy has the same end, and all of it is committed, as each of them knows: within ten seconds.

    RELIABILITY has no figure for that. They begin when clients have no appends under way any more, or must have given them up: a producer
    that was put back to an image of it is refused until `delivery_timeout_ms` is over, and appends then what has waited behind that.
    """

    name = "L3"
    copies = True
    source = "RELIABILITY 6.5; KAFKA-9952"
    protocol = ("L7",)

    def begin(self, world: World) -> None:
        """Appends come to their end first."""
        _end_appends(world)

    def limit_ms(self, shape: Shape) -> int:
        return ISR_MS

    def missing(self, world: World) -> Iterator[str]:
        for ledger, broker, copy in _living_copies(world):
            if copy is None or copy.log.end_offset != ledger.end or copy.high_watermark != ledger.end:
                yield f"on broker {broker}: {copy!r} of {_name(ledger)}, committed {ledger.end}"


class ProbesAreConfirmed(Promise):
    """What is appended now is confirmed, and then read, within some seconds; by every client, at every partition of the run's topic.

    One second would do wherever nothing happens meanwhile: 0.8 s is the most that was seen in some dozens of runs. But the probe may
    be the first that needs a spoiled disk, whose process then ends: its leadership passes on when its session has ended
    (`session_ms`), and the client, which asks somebody else after `unanswered_ms`, finds the next leader within the rest.
    """

    name = "L4"
    source = "RELIABILITY 6.5"
    protocol = ("L5",)

    def __init__(self) -> None:
        self._probes: list[Any] = []

    def begin(self, world: World) -> None:
        """One append each."""
        ledgers = [ledger for ledger in _partitions(world) if ledger.topic == TOPIC]  # others may be deleted meanwhile
        self._probes = [client.probe(one.identity.partition, one.topic) for client in world.clients.values() for one in ledgers]

    def limit_ms(self, shape: Shape) -> int:
        # A disk that has lied is replaced now, and its broker comes back when its old session has ended. Where flushes take long, or are
        # heard of late, that of what is under way makes room for the probe, and that of the probe confirms it.
        return PROBE_MS + shape.session_ms + 2 * (shape.flush_heard_ms + shape.flush_takes_ms)

    def missing(self, world: World) -> Iterator[str]:
        for probe in self._probes:
            if not probe.done or probe.error is not None:
                yield f"{probe.queue.topic}-{probe.queue.partition}: {probe.error or 'no answer'}"

    def keep(self, world: World) -> None:
        """Read them as well: again while there is nothing to read yet, for a leader that is new learns its watermark from its followers."""
        super().keep(world)
        client = next(iter(world.clients.values()))
        deadline_ms = world.now_ms + self.limit_ms(world.plan.shape)
        unread = self._probes
        while unread:
            reads = []
            for probe in unread:
                at = (probe.queue.topic, probe.queue.partition, probe.base_offset)
                reads.append(FetchOp(*at, max_bytes=1 << 16, wait_ms=0, deadline_ms=deadline_ms))
                client.submit(reads[-1])
            world.run_until(deadline_ms + 1_000, lambda reads=reads: all(op.done for op in reads))  # type: ignore[misc]
            pairs = zip(unread, reads, strict=True)
            unread = [probe for probe, op in pairs if not self._is_read(world, probe, op, last=world.now_ms >= deadline_ms)]
            if unread:
                world.run_until(min(world.now_ms + _STEP_MS, deadline_ms))

    def _is_read(self, world: World, probe: Any, op: FetchOp, *, last: bool) -> bool:
        """Whether the probe was read. Raises Violation if something else was, or nothing in the `last` attempt."""
        assert probe.base_offset is not None
        if isinstance(op.error, OffsetOutOfRange) and world.is_trimmed(probe.queue.partition, probe.base_offset):
            return True  # retention was faster
        found = unpack_all(op).records if op.done and op.error is None else []
        if op.done and op.error is None and not found and not last:
            return False
        if not found or found[0].offset != probe.base_offset:
            where = f"{probe.queue.topic}-{probe.queue.partition} at {probe.base_offset}"
            raise Violation("L8" if world.absent else self.name, f"{where} was confirmed, and is not read: {op.error}")
        return True


class CopiesAreEqual(Promise):
    """All copies of a partition are equal below the high watermark: byte by byte, not by checksums."""

    name = "L5"
    source = "RELIABILITY 6.5; S9"
    protocol = ("I1",)

    def limit_ms(self, shape: Shape) -> int:
        return 0

    def missing(self, world: World) -> Iterator[str]:
        for ledger in _partitions(world):
            if waits_rightly(world, ledger) or ledger.state is None:  # it is being made just now
                continue
            copies = {broker: world.checks.copy(ledger.identity, broker) for broker in _living(world, ledger)}
            start = max((copy.log.start_offset for copy in copies.values() if copy.log is not None), default=0)
            read = {broker: bytes_of(copy, start, ledger.end) for broker, copy in copies.items()}
            # What a disk has spoiled and nobody has read since is not the protocol's business; there must be an intact copy.
            intact = {b: data for b, data in read.items() if data is not None and not (copies[b].suspect and is_spoiled(data))}
            if len(set(intact.values())) != 1 or any(b not in intact and not copies[b].suspect for b in copies):
                lengths = {b: None if data is None else len(data) for b, data in read.items()}
                yield f"{_name(ledger)} from {start} to {ledger.end}: copies differ, lengths {lengths}"


class NothingIsLeftOver(Promise):
    """Nothing is under way any more: no proposal, no request, no notice, no deletion."""

    name = "L7"
    source = "RELIABILITY 6.5; KIP-497"
    protocol = ("L3", "L8")

    def limit_ms(self, shape: Shape) -> int:
        return IDLE_MS + shape.client_config().delivery_timeout_ms

    def missing(self, world: World) -> Iterator[str]:
        for node in world.nodes.values():
            if node.broker_id not in world.absent:
                yield from (f"broker {node.broker_id} has {what}" for what in (*self._at(node), *_left_over(world, node)))
        deletions = world.root.list(layout.DELETE_TOPICS)
        if deletions:
            yield f"{layout.DELETE_TOPICS} holds {deletions}"
        for name in world.root.list(layout.REMOVED):
            path = f"{layout.REMOVED}/{name}"
            found = world.root.read(path)
            holders = () if found is None else layout.decode_removed(path, found.value)
            if not world.absent.issuperset(holders):
                yield f"{path} still names brokers {holders}"
        for client in world.clients.values():
            if client.core._ops:
                yield f"client {client.number} waits for {len(client.core._ops)} operations"

    def _at(self, node: Node) -> Iterator[str]:
        broker, controller = node.broker, node.controller
        if broker is None or controller is None:
            yield "no process"
            return
        for partition in broker.partitions.values():
            if partition.leading is not None and not isinstance(partition.leading.isr, Committed):
                yield f"a pending proposal {partition.leading.isr} of {partition!r}"
        if broker._waiting.count:
            yield f"{broker._waiting.count} waiting appends"
        if broker._sessions._clients:
            yield f"{len(broker._sessions._clients)} waiting fetches of clients"
        for fetcher in broker._fetching._fetchers.values():
            if len(fetcher.unanswered) > 1:
                yield f"{len(fetcher.unanswered)} fetches under way to broker {fetcher.leader}"
        unacknowledged = {broker: count for broker, count in controller.unacknowledged.items() if broker not in node.world.absent}
        if unacknowledged:
            yield f"unacknowledged notices to brokers {unacknowledged}"
        if controller.questions:
            yield f"{controller.questions} unanswered questions to last-known replicas"


def _left_over(world: World, node: Node) -> Iterator[str]:
    """Logs that no topic assigns to this broker, and such that have been in quarantine for long enough by the clock of the broker."""
    directory = node.directory
    there = {identity.topic_id for identity in world.checks.ledgers}
    # What came back with an image, of a topic that is gone, is kept: nothing says any more that it is to be deleted (P-68).
    kept = {identity for identity in node.came_back if identity.topic_id not in there}
    strays = (identity for identity in directory.identities() if identity not in kept and not _holds(world, node, identity))
    yield from (f"a log of {identity!r}, which nobody assigns to it" for identity in strays)
    due_ms = world.wall_ms + node.wall_offset_ms - world.config.deletion_delay_ms
    yield from (f"{identity!r} in quarantine" for identity, since_ms in directory.quarantined().items() if since_ms <= due_ms)


def _holds(world: World, node: Node, identity: PartitionId) -> bool:
    ledger = world.checks.ledgers.get(identity)
    return ledger is not None and node.broker_id in ledger.replicas


PROMISES: tuple[type[Promise], ...] = (
    EveryPartitionIsLed,
    IsrsAreFull,
    MovesEnd,
    ProbesAreConfirmed,
    WatermarksMove,
    WatermarksReachTheEnd,
    CopiesAreEqual,
    NothingIsLeftOver,
)
"""In the order in which they are kept."""


# ------------------------------------------------------------------------------------------------------ begin and end


def boot(world: World) -> None:
    """All brokers start, the topic is made, every partition gets its full ISR. The network is calm meanwhile."""
    world.network.calm = True
    for node in world.nodes.values():
        node.start()
    if not world.run_until(BOOT_MS // 2, lambda: lives_are_known(world)):
        raise Violation("boot", f"not every broker is let in after {BOOT_MS // 2} ms: {world.root.list(layout.BROKER_IDS)}")
    client = next(iter(world.clients.values()))
    full, op = IsrsAreFull(), client.create_topic()
    if not world.run_until(BOOT_MS, lambda: op.done and next(full.missing(world), None) is None):
        raise Violation("boot", f"no topic with a full ISR after {BOOT_MS} ms: {op.error or 'no answer'}")
    if op.error is not None:
        raise Violation("boot", f"the topic was refused: {op.error}")
    world.network.calm = False
    world.note("booted")


def recover(world: World) -> None:
    """Heal everything and wait for each promise in turn."""
    world.heal()
    keep_promises(world)


def keep_promises(world: World) -> None:
    """Wait for each promise in turn.

    Where few appends may wait for their confirmation the others are refused, and sent again; where flushes take long, so do appends: what
    clients have under way goes on for long, and everything is full of it. There it ends first, or is given up.
    """
    shape = world.plan.shape
    if shape.limits.waiting_appends_max or (shape.flush == "ack" and shape.flush_takes_ms + shape.flush_heard_ms):
        _end_appends(world)
    for promise in PROMISES:
        promise().keep(world)
    world.note("recovered")


def _end_appends(world: World) -> None:
    """Let time pass until what clients have under way is stored, refused, or must be given up."""
    given_up_ms = world.now_ms + world.plan.shape.client_config().delivery_timeout_ms
    world.run_until(given_up_ms, lambda: not any(client.core.has_batches for client in world.clients.values()))


def lives_are_known(world: World) -> bool:
    """Every broker that lives has heard that each of them is let in, in its present life."""
    brokers = {broker_id: node.broker for broker_id, node in world.nodes.items() if node.broker is not None}
    lives = {(broker_id, broker.broker_epoch, False) for broker_id, broker in brokers.items()}
    return all(
        lives <= {(broker_id, known.broker_epoch, known.fenced) for broker_id, known in broker.routing.brokers.items()}
        for broker in brokers.values()
    )


# ------------------------------------------------------------------------------------------------------------ looking


def _partitions(world: World) -> Iterable[Ledger]:
    """Every partition of every topic that the store has and that is not being deleted, whether it has a state or not."""
    return world.checks.expected() or [Ledger(PartitionId(b"", 0, 0))]


def _living(world: World, ledger: Ledger) -> tuple[int, ...]:
    return tuple(broker for broker in ledger.replicas if broker not in world.absent)


def _living_copies(world: World) -> Iterator[tuple[Ledger, int, Partition | None]]:
    """Every copy that is to be there, with its broker, but of those that rightly wait."""
    for ledger in _partitions(world):
        for broker in () if waits_rightly(world, ledger) else _living(world, ledger):
            yield ledger, broker, _partition(world, broker, ledger.identity)


def _partition(world: World, broker: int, identity: PartitionId) -> Partition | None:
    """As the process of a broker has it now."""
    running = world.nodes[broker].broker
    return None if running is None else running.partitions.get(identity)


def _name(ledger: Ledger) -> str:
    return f"{ledger.topic}-{ledger.identity.partition}"
