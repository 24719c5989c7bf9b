"""One simulated cluster: virtual time, an ordered heap of events, nodes, clients, the network, and who watches it all."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, Final

from attrs import evolve

from replog.codec import LOCAL_MESSAGES, decode, encode
from replog.messages import DOUBTED, Admin, AdminAnswer, Disconnected, Fetched, Metadata, Unreached
from replog.metadata.memory import MemoryStore
from replog.model import Address
from replog.ports import Event, MemorySlice, Slice
from replog.testing.history.recorder import History
from replog.testing.simulator.checks import Checks
from replog.testing.simulator.clients import TOPIC, SimulatedClient
from replog.testing.simulator.copying import Moved
from replog.testing.simulator.ledger import Ledger, Violation
from replog.testing.simulator.marks import Marks
from replog.testing.simulator.nemesis import Nemesis
from replog.testing.simulator.network import Network, node_of
from replog.testing.simulator.node import Node
from replog.testing.simulator.plan import Plan, Shape, stream
from replog.testing.simulator.racks import Placements
from replog.testing.simulator.refusals import Refusals
from replog.testing.simulator.tasks import Signal, Task
from replog.testing.simulator.tracing import message_text, name_of
from replog.testing.simulator.wishes import Wishes

__all__ = ["World"]

WALL_START_MS: Final = 1_700_000_000_000
_TAIL: Final = 40
_HASHED_AT_ONCE: Final = 256
"""Lines of the trace."""


class World:
    """Runs events in order of (time, number). Nothing here depends on the machine, the clock or the hash seed."""

    def __init__(self, plan: Plan, *, tail: int = _TAIL) -> None:
        self.plan = plan
        self.config = plan.shape.broker_config()
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._trace = hashlib.sha256()
        self._lines: list[str] = []
        """Lines of the trace that are not hashed yet."""
        self.tail: deque[str] = deque(maxlen=tail)
        """The last lines of the trace."""
        self._told = tail > 0
        self.events = 0
        self.sessions = 0
        self.calm = False
        """The safety phase is over: no more faults."""
        self.absent: frozenset[int] = frozenset()
        """Brokers that stay out now, although everything is healed."""
        self.marks = Marks()
        self.wishes = Wishes(Placements(plan.shape.racks, self._staying, self.marks.hit, {}), self.config)
        # What retention has removed of a producer is forgotten with it, as is one of too many, or silent for too long: S17 knows of what
        # and to what length, a history does not.
        # A writer that is not idempotent says so when it is opened.
        self.history = History(idempotent=not _forgets(plan.shape), stale_reads=True, clock=lambda: self.now_ms)
        """What clients were told; to be checked at the end."""
        self.root = MemoryStore()
        self.refusals = Refusals()
        self.network = Network(plan.shape, stream(plan.seed, "network"))
        self._dials = stream(plan.seed, "dials")
        self.checks = Checks(self)
        self.moved = Moved(plan.shape) if plan.shape.limits.reassignment_bytes_per_s else None
        self.nodes = {broker_id: Node(self, broker_id) for broker_id in range(1, plan.shape.brokers + 1)}
        self.clients = {("client", n): SimulatedClient(self, n) for n in range(1, plan.shape.clients + 1)}
        self.nemesis = Nemesis(self)
        self.tasks: list[Task] = []
        self._ready: deque[Task] = deque()
        self._starts: dict[tuple[str, int], int] = {}
        """(topic, partition) -> where the shortest of its logs has ever started."""

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
        ready = self._ready
        while self._heap and self._heap[0][0] <= time_ms:
            if events_max is not None and self.events >= events_max:
                return False
            self.now_ms, _, what, args = heappop(self._heap)
            self.events += 1
            self.checks.event()
            what(*args)
            while ready:
                self._run_task(ready.popleft())
            if done is not None and done():
                return True
        self.now_ms = max(self.now_ms, time_ms)
        return False

    # ----------------------------------------------------------------------------------------------------------- tasks

    def spawn(self, name: str, coroutine: Coroutine[Signal, None, Any]) -> Task:
        """Run a coroutine from now on, beside everything else."""
        task = Task(name, coroutine, self._ready.append)
        self.tasks.append(task)
        self._ready.append(task)
        self.at(0, _nothing)  # there is an event to run it after, even if nothing else happens
        return task

    def timer(self, ms: int) -> Signal:
        """Something that happens after so much virtual time."""
        signal = Signal()
        self.at(ms, signal.set)
        return signal

    def _run_task(self, task: Task) -> None:
        task.run()
        if task.done:
            self.tasks.remove(task)
        if task.error is not None:
            if isinstance(task.error, Violation):
                raise task.error
            raise Violation("crash", f"workload {task.name}: {task.error!r}") from task.error

    # ----------------------------------------------------------------------------------------------------------- trace

    def note(self, text: str) -> None:
        """A line of the trace."""
        if not self._told:
            return
        line = f"{self.now_ms:>6} {text}"
        self.tail.append(line)
        self._lines.append(line)
        if len(self._lines) >= _HASHED_AT_ONCE:
            self._hash()

    def _hash(self) -> None:
        self._trace.update("".join(self._lines).encode())
        self._lines.clear()

    def note_event(self, broker_id: int, event: Event) -> None:
        """Something an actor found worth telling."""
        self.marks.hit(f"told {event.name}")
        if self._told:
            fields = ", ".join(f"{name} {value}" for name, value in event.fields.items() if isinstance(value, int | str))
            self.note(f"{broker_id} tells {event.name}: {fields}")

    def trace_message(self, to: Address, sender: Address, message: Any) -> None:
        """A message is handled."""
        if self._told:
            self.note(f"{name_of(to)} < {name_of(sender)} {message_text(message)}")

    @property
    def trace_hash(self) -> str:
        """Of all lines so far; empty if none is kept."""
        self._hash()
        return self._trace.hexdigest()[:16] if self._told else ""

    def applied(self, ops: list[Any]) -> None:
        """The store has committed a transaction."""
        self.wishes.applied(ops, self.plan.shape.brokers)
        self.checks.applied(ops)
        if self.moved is not None:
            self.moved.stored(self.checks.ledgers)

    def _staying(self, controller: Address) -> frozenset[tuple[int, int]] | None:
        """The brokers on which a controller in office would put new copies, each with its broker epoch."""
        place = node_of(controller)
        node = self.nodes.get(place) if isinstance(place, int) else None
        term = None if node is None or node.controller is None else node.controller._term
        return None if term is None else frozenset((b, info.broker_epoch) for b, info in term.cluster.staying_brokers().items())

    def trimmed(self, ledger: Ledger, start: int) -> None:
        """A log starts later than before: readers may hear of it from now on."""
        self.marks.hit("a log starts later than before")
        where = ledger.topic, ledger.identity.partition
        self._starts[where] = max(start, self._starts.get(where, 0))
        if ledger.topic == TOPIC:
            self.history.trim(f"{TOPIC}/{ledger.identity.partition}", start)

    def is_trimmed(self, partition: int, offset: int, topic: str = TOPIC) -> bool:
        """Whether some log of that name starts, or ever started, above an offset: only that excuses OffsetOutOfRange."""
        starts = [self._starts.get((topic, partition), 0)]
        for identity, ledger in self.checks.ledgers.items():
            if ledger.topic == topic and identity.partition == partition:
                starts += [copy.log.start_offset for copy in self.checks.copies(identity).values() if copy.log is not None]
        return max(starts) > offset

    # -------------------------------------------------------------------------------------------------------- messages

    def send(self, sender: Address, to: Address, message: Any) -> None:
        """Put a message on its way. It is meant for the process that runs there now: a connection does not survive its end."""
        place, origin = node_of(to), node_of(sender)
        if type(message) is Admin or type(message) is AdminAnswer:
            self.wishes.sent(sender, to, message)
        elif type(message) is Metadata:
            self.wishes.sought.update(message.sought)
        self.marks.sent(message)
        shape = self.plan.shape
        wire = shape.codec and type(message) not in LOCAL_MESSAGES and origin != place
        if shape.files and isinstance(message, Fetched):
            message = _off_the_disk(message)
        target: SimulatedClient | Node | None = self.nodes.get(place) if type(place) is int else self.clients.get(place)  # type: ignore[call-overload]
        if target is None:
            return
        if type(message) in DOUBTED and isinstance(target, Node) and not target.alive and self._dials.random() < 0.5:
            return self._turn_back(sender, to, message)
        for delay, link in self.network.passages(origin, place, message):
            copy = decode(b"".join(encode(message))) if wire else message
            self.at(delay, self._arrive, target, target.life, link, to, sender, copy)

    def _turn_back(self, sender: Address, to: Address, message: Any) -> None:
        """Nobody runs there, and the sender's process finds that out before it has sent anything."""
        self.marks.hit("a request finds nobody there")
        for hint in (Unreached(to, message), Disconnected(to)):
            if type(sender) is int:
                self.nodes[sender].later(0, sender, None, hint)
            else:
                self.at(0, self.clients[sender].deliver, 0, sender, None, hint)  # type: ignore[index]

    def _arrive(self, target: SimulatedClient | Node, life: int, link: int, to: Address, sender: Address, message: Any) -> None:
        if link == self.network.link_life(sender, to):
            if self.moved is not None and type(to) is int and type(message) is Fetched:
                self.moved.arrived(to, message, self.now_ms)
            target.deliver(life, to, sender, message)

    # ---------------------------------------------------------------------------------------------------------- faults

    def heal(self) -> None:
        """The safety phase ends: every fault is over, the network and the store are as they should be, everybody runs but the `absent`."""
        self.note("healed")
        self.calm = True
        self.nemesis.heal()
        for node in self.nodes.values():
            node.heal()

    def close(self) -> None:
        """The run is over, perhaps in the middle of it."""
        for task in self.tasks:
            task.close()
        self.tasks.clear()
        for node in self.nodes.values():
            node.flushes.end("close")
        for client in self.clients.values():
            client.blocking._driver.close()  # whoever still holds what it has not flushed has not forgotten it


def _forgets(shape: Shape) -> bool:
    return bool(shape.retention_bytes or shape.retention_ms or shape.limits.forget_producers)


def _off_the_disk(message: Fetched) -> Fetched:
    """Once it is sent, an answer is bytes: what happens to the files of the sender does not change it."""
    entries = []
    for entry in message.entries:
        slices: list[Slice] = []
        for piece in entry.slices:
            slices.append(MemorySlice(piece.base_offset, piece.end_offset, memoryview(bytes(piece.view()))))
            piece.release()
        entries.append(evolve(entry, slices=slices))
    return evolve(message, entries=entries)


def _nothing() -> None:
    """An event that is only there to be one."""
