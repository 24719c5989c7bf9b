"""One simulated cluster: virtual time, an ordered heap of events, nodes, clients, and the plan of faults that befalls them."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from replog.messages import AlterIsr, AlterIsrAnswer, Fetch, Fetched, FetchedEntry, LeaderAndIsr, Produce, Produced
from replog.metadata.memory import MemoryStore
from replog.model import Address
from replog.ports import Event, StoreResult, WatchFired
from replog.testing.simulator.checks import Checks
from replog.testing.simulator.clients import SimulatedClient
from replog.testing.simulator.network import Network, node_of
from replog.testing.simulator.node import Node
from replog.testing.simulator.plan import Fault, Plan, stream

__all__ = ["World"]

WALL_START_MS: Final = 1_700_000_000_000
_TAIL: Final = 40


class World:
    """Runs events in order of (time, number). Nothing here depends on the machine, the clock or the hash seed."""

    def __init__(self, plan: Plan, *, tail: int = _TAIL) -> None:
        self.plan = plan
        self.config = plan.shape.broker_config()
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._trace = hashlib.sha256()
        self.tail: deque[str] = deque(maxlen=tail)
        """The last lines of the trace."""
        self.events = 0
        self.sessions = 0
        self.outages = 0
        self.calm = False
        """The safety phase is over: no more faults."""
        self.befallen: dict[str, int] = {}
        """How many faults of each kind happened."""
        self.root = MemoryStore()
        self.network = Network(plan.shape, stream(plan.seed, "network"))
        self._targets = stream(plan.seed, "targets")
        self.checks = Checks(self)
        self.nodes = {broker_id: Node(self, broker_id) for broker_id in range(1, plan.shape.brokers + 1)}
        self.clients = {("client", n): SimulatedClient(self, n) for n in range(1, plan.shape.clients + 1)}

    @property
    def wall_ms(self) -> int:
        """The wall clock, which nothing that matters may depend on."""
        return WALL_START_MS + self.now_ms

    # ------------------------------------------------------------------------------------------------------------ time

    def at(self, delay_ms: int, what: Callable[..., None], *args: Any) -> None:
        """Call `what(*args)` after a delay; at one moment, in the order of asking."""
        self._order += 1
        heappush(self._heap, (self.now_ms + delay_ms, self._order, what, args))

    def run_until(self, time_ms: int, done: Callable[[], bool] | None = None, *, events_max: int | None = None) -> bool:
        """Run events up to a time, or until `done()`; whether it was."""
        while self._heap and self._heap[0][0] <= time_ms:
            if events_max is not None and self.events >= events_max:
                return False
            self.now_ms, _, what, args = heappop(self._heap)
            self.events += 1
            self.checks.event()
            what(*args)
            if done is not None and done():
                return True
        self.now_ms = max(self.now_ms, time_ms)
        return False

    # ----------------------------------------------------------------------------------------------------------- trace

    def note(self, text: str) -> None:
        """A line of the trace."""
        line = f"{self.now_ms:>6} {text}"
        self.tail.append(line)
        self._trace.update(line.encode())

    def note_event(self, broker_id: int, event: Event) -> None:
        """Something an actor found worth telling."""
        fields = ", ".join(f"{name} {value}" for name, value in event.fields.items() if isinstance(value, int | str))
        self.note(f"{broker_id} tells {event.name}: {fields}")

    def trace_message(self, to: Address, sender: Address, message: Any) -> None:
        """A message is handled."""
        self.note(f"{_name(to)} < {_name(sender)} {_short(message)}")

    @property
    def trace_hash(self) -> str:
        """Of all lines so far."""
        return self._trace.hexdigest()[:16]

    def applied(self, ops: list[Any]) -> None:
        """The store has committed a transaction."""
        self.checks.applied(ops)

    # -------------------------------------------------------------------------------------------------------- messages

    def send(self, sender: Address, to: Address, message: Any) -> None:
        """Put a message on its way. It is meant for the process that runs there now: a connection does not survive its end."""
        place = node_of(to)
        if place in self.clients:
            client = self.clients[place]
            for delay in self.network.delays(sender, to, message):
                self.at(delay, client.receive, sender, message)
        elif place in self.nodes:
            node = self.nodes[place]
            for delay in self.network.delays(sender, to, message):
                self.at(delay, node.deliver, node.life, to, sender, message)

    # ---------------------------------------------------------------------------------------------------------- faults

    def schedule_faults(self) -> None:
        """The plan begins now."""
        for fault in self.plan.faults:
            self.at(fault.at_ms, self._befall, fault)

    def target(self, role: str, partition: int = 0) -> Node | None:
        """The node that a fault means: by number, or by what it is now."""
        if role.isdecimal():
            return self.nodes[int(role)]
        if role == "controller":
            return next((node for node in self.nodes.values() if node.controller is not None and node.controller.is_controller), None)
        for identity in sorted(self.checks.ledgers):
            ledger = self.checks.ledgers[identity]
            if identity.partition == partition and ledger.state is not None:
                if role == "leader":
                    return None if ledger.state.leader is None else self.nodes[ledger.state.leader]
                others = [b for b in ledger.replicas if b != ledger.state.leader]
                return self.nodes[self._targets.choice(others)] if others else None
        return None

    def _befall(self, fault: Fault) -> None:
        if self.calm:
            return
        partition = self._targets.randrange(self.plan.shape.partitions)
        if fault.kind == "outage":
            self._outage(fault.length_ms)
        else:
            node = self.target(fault.target, partition)
            if node is None or not self._strike(fault, node, partition):
                return
            self.note(f"fault {fault.kind} at {node.broker_id} for {fault.length_ms}")
        self.befallen[fault.kind] = self.befallen.get(fault.kind, 0) + 1

    def _strike(self, fault: Fault, node: Node, partition: int) -> bool:
        kind, length, network, here = fault.kind, fault.length_ms, self.network, node.broker_id
        if kind in ("kill", "power", "wipe"):
            if not node.alive or (kind != "kill" and not self.checks.may_lose(here)):
                return False
            node.kill(power=kind == "power", wipe=kind == "wipe")
            self.at(length, node.start)
        elif kind == "churn":
            for start in range(0, length, 700):
                self.at(start, self._expire_leader, partition)
        elif kind == "expire":
            node.expire()
        elif kind in ("cut", "cut_one_way"):
            other = fault.other if fault.other != here else here % self.plan.shape.brokers + 1
            network.cut(here, other, 1, both=kind == "cut")
            self._later(length, lambda: network.cut(here, other, -1, both=kind == "cut"))
        elif kind == "isolate":
            network.isolate(here, 1)
            self._later(length, lambda: network.isolate(here, -1))
        elif kind == "lag":
            network.lag(here, 1)
            self._later(length, lambda: network.lag(here, -1))
        else:
            self._hinder(kind, node, length)
        return True

    def _hinder(self, kind: str, node: Node, length: int) -> None:
        """Faults that leave the process where it is, and make something slow or silent for it."""
        line = node.line
        if kind == "pause":
            node.pause(1)
            self._later(length, lambda: node.pause(-1))
            self._watch_session(node, lambda: node.paused > 0)
        elif kind == "store":
            node.cut_store(1)
            self._later(length, lambda: node.cut_store(-1))
            self._watch_session(node, lambda: node.store_cuts > 0)
        elif kind == "unsure" and line is not None:
            line.unsure = 0.5
            self._later(length, lambda: setattr(line, "unsure", self.plan.shape.unsure))
        elif kind == "flush":
            node.slow_flushes += 1
            self._later(length, lambda: setattr(node, "slow_flushes", node.slow_flushes - 1))

    def _later(self, length_ms: int, undo: Callable[[], None]) -> None:
        """End a fault, unless everything has been healed before."""
        self.at(length_ms, lambda: None if self.calm else undo())

    def _watch_session(self, node: Node, still: Callable[[], bool]) -> None:
        """A session ends when its process was not heard of for its whole time."""
        line = node.line

        def check() -> None:
            if line is not None and node.line is line and still():
                node.expire()

        self.at(self.plan.shape.session_ms, check)

    def _expire_leader(self, partition: int) -> None:
        node = self.target("leader", partition)
        if node is not None and not self.calm:
            node.expire()

    def _outage(self, length_ms: int) -> None:
        self.note(f"fault outage for {length_ms}")
        self.outages += 1
        for node in self.nodes.values():
            node.outage(over=False)
        self._later(length_ms, self._end_outage)

    def _end_outage(self) -> None:
        self.outages -= 1
        if not self.outages:
            for node in self.nodes.values():
                node.outage(over=True)

    def heal(self) -> None:
        """The safety phase ends: every fault is over, everybody runs, the network and the store are as they should be."""
        self.note("healed")
        self.calm = True
        self.network.heal()
        self.outages = 0
        for node in self.nodes.values():
            node.slow_flushes = 0
            if node.line is not None:
                node.line.unsure = 0.0
            if node.store_cuts:
                node.cut_store(-node.store_cuts)
            elif node.line is not None and not node.line.reachable:
                node.outage(over=True)
            if node.paused:
                node.pause(-node.paused)
            node.start()


def _name(address: Address) -> str:
    if isinstance(address, tuple):
        return f"{address[0]}{address[1]}"
    return "-" if address is None else str(address)


def _short(message: Any) -> str:
    """A message in a few words: what a person follows when reading a trace."""
    name = type(message).__name__
    match message:
        case Fetch():
            asked = [(e.partition.partition, e.leader_epoch, e.offset) for e in message.entries]
            return f"{name} {message.request} s{message.session}.{message.session_epoch} {asked}"
        case Fetched():
            return f"{name} {message.request} s{message.session} {message.error} {[_answered(e) for e in message.entries]}"
        case Produce():
            return f"{name} acks {message.acks} {[(e.request, e.partition.partition, len(e.body)) for e in message.entries]}"
        case Produced():
            return f"{name} {[(e.request, e.error, e.base_offset) for e in message.entries]}"
        case LeaderAndIsr():
            states = [(e.partition.partition, e.state.leader, e.state.leader_epoch, e.state.isr) for e in message.entries]
            return f"{name} {message.notice}{' complete' if message.complete else ''} c{message.controller_epoch} {states}"
        case AlterIsr():
            return f"{name} {message.request} {[(e.partition.partition, e.partition_epoch, e.isr) for e in message.entries]}"
        case AlterIsrAnswer():
            return f"{name} {message.request} {message.error} {[(e.partition.partition, e.error) for e in message.entries]}"
        case StoreResult():
            return f"{name} {message.call}{'' if message.error is None else ' ' + type(message.error).__name__}"
        case WatchFired():
            return f"{name} {message.path}"
        case _:
            return name


def _answered(entry: FetchedEntry) -> tuple[int, ...]:
    size = sum(piece.length for piece in entry.slices)
    place = entry.partition.partition, entry.leader_epoch, entry.offset
    return (*place, entry.error, entry.high_watermark, entry.diverging_end, size)
