"""Controllers, memberships and fake brokers on one store in memory, stepped by hand until nothing is under way."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from attrs import evolve

from replog.broker.membership import Membership
from replog.config import BrokerConfig
from replog.controller.executor import ControllerExecutor
from replog.errors import Code, ReplogError
from replog.messages import (
    Admin,
    AdminAnswer,
    AlterIsr,
    AlterIsrAnswer,
    AlterIsrEntry,
    Heartbeat,
    LeaderAndIsr,
    LeaderAndIsrAnswer,
    PartitionNotice,
    Registered,
    ReplicasFailed,
    ReplicaState,
    ReplicaStates,
    ReplicaStatesAnswer,
    StopReplica,
    StopReplicaAnswer,
    UpdateMetadata,
)
from replog.metadata import layout
from replog.metadata.memory import MemoryStore
from replog.model import PartitionId, PartitionState
from replog.ports import LossReport, SessionChanged, StoreCall, StoreResult, UnknownOutcome, WatchFired
from replog.testing.clock import SeededIds

STEPS_MAX = 200_000


class FakeBroker:
    """Obeys as a broker would, and keeps what it was told."""

    def __init__(self, broker_id: int, copies: dict[PartitionId, tuple[int, int]]) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.controller_epoch = -1
        self.controller: int | None = None
        self.copies = copies
        """Partition -> (last epoch, end offset) of the log on its disk."""
        self.states: dict[PartitionId, PartitionNotice] = {}
        self.received: list[Any] = []
        self.answers: list[Any] = []
        self.notice = -1
        self.mute = False
        self.full = False
        """No room for another copy."""
        self.failed: set[PartitionId] = set()
        """Copies that this life has reported as failed, and not put away since."""

    def receive(self, message: Any) -> Any:
        self.received.append(message)
        match message:
            case Registered():
                self.broker_epoch = message.broker_epoch
            case AlterIsrAnswer() | AdminAnswer():
                self.answers.append(message)
            case LeaderAndIsr() | StopReplica() | ReplicaStates() | UpdateMetadata():
                return self._obey(message)
        return None

    def _obey(self, message: Any) -> Any:
        error = Code.NONE
        if message.controller_epoch < self.controller_epoch:
            error = Code.STALE_CONTROLLER_EPOCH
        elif message.broker_epoch < self.broker_epoch:
            error = Code.STALE_BROKER_EPOCH
        else:
            self.controller_epoch = message.controller_epoch
            self.controller = message.controller_id
        head = (self.broker_id, self.broker_epoch)
        if isinstance(message, LeaderAndIsr):
            missing = [e.partition for e in message.entries if self.full and not error and e.partition not in self.copies]
            errors = [(p, Code.LOG_DIRECTORY_FULL) for p in missing]
            errors += [(e.partition, Code.STORAGE_ERROR) for e in message.entries if not error and e.partition in self.failed]
            strays = [] if error else self._become(message, missing)
            return LeaderAndIsrAnswer(*head, self.controller_epoch, message.notice, error, errors, strays)
        if isinstance(message, StopReplica):
            for entry in message.entries if not error else []:
                self.states.pop(entry.partition, None)
                if entry.delete:
                    self.copies.pop(entry.partition, None)
                    self.failed.discard(entry.partition)
            return StopReplicaAnswer(*head, self.controller_epoch, message.notice, error)
        if isinstance(message, ReplicaStates) and not error:
            found = [ReplicaState(p, *self.copies.get(p, (-1, 0))) for p in message.partitions]
            return ReplicaStatesAnswer(*head, message.request, found)
        return None

    def _become(self, message: LeaderAndIsr, missing: list[PartitionId]) -> list[PartitionId]:
        for entry in message.entries:
            if entry.partition in missing:
                continue
            known = self.states.get(entry.partition)
            epochs = entry.state.leader_epoch, entry.state.partition_epoch
            if known is None or (known.state.leader_epoch, known.state.partition_epoch) <= epochs:
                self.states[entry.partition] = entry
                self.copies.setdefault(entry.partition, (-1, 0))
        if message.complete or not missing:
            self.notice = message.notice if message.complete else max(self.notice, message.notice)
        if not message.complete:
            return []
        named = {entry.partition for entry in message.entries}
        return sorted(p for p in self.copies if p not in named)


class Node:
    """One process: membership, controller and broker over one store session."""

    def __init__(self, world: World, node: int, copies: dict[PartitionId, tuple[int, int]], options: dict[str, Any]) -> None:
        world.lives += 1
        ids = SeededIds(1_000 * node + world.lives)
        self.id = node
        self.session = world.store.session()
        self.broker = FakeBroker(node, copies)
        self.membership = Membership(node, config=world.config, ids=ids, **options)
        self.controller = ControllerExecutor(node, config=world.config, ids=ids)
        self.paused = False

    def actors(self) -> dict[Any, Any]:
        return {("membership", self.id): self.membership, ("controller", self.id): self.controller}


class World:
    """The nodes, the store, and everything under way between them."""

    def __init__(self, brokers: int = 3, **config: Any) -> None:
        self.store = MemoryStore()
        self.incarnations: dict[int, list[str]] = {}
        """Of each broker, the oldest first."""
        self.config = BrokerConfig(**config)
        self.now_ms = 1_000
        self.wall_ms = 0
        """The time of day at ticks; 0: actors know of none."""
        self.lives = 0
        self.nodes: dict[int, Node] = {}
        self.disks: dict[int, dict[PartitionId, tuple[int, int]]] = {}
        self.queue: deque[Callable[[], None]] = deque()
        self.sent: list[tuple[Any, Any, Any]] = []
        self.client: list[Any] = []
        self.events: list[Any] = []
        self.commits: list[list[Any]] = []
        """Transactions that controllers asked for, in order."""
        self.calls: Counter[str] = Counter()
        self.before_store: Callable[[Any, StoreCall], str | None] = lambda _address, _call: None
        """May return "lost" (not applied, outcome unknown) or "applied" (applied, outcome unknown)."""
        self.after_store: Callable[[Any, StoreCall], None] = lambda _address, _call: None
        self.drop: Callable[[Any, Any, Any], bool] = lambda _sender, _to, _message: False
        self.drop_watches = False
        for node in range(1, brokers + 1):
            self.start(node)
        self.settle()

    # ---- nodes

    def start(
        self, node: int, *, loss: LossReport | None = None, directory: str | None = None, settle: bool = False, **options: Any
    ) -> Node:
        """A process. Its directory goes on from every earlier life of it, unless the report names others."""
        lives, incarnation = self.incarnations.setdefault(node, []), f"{node}.{self.lives}"
        loss = loss or LossReport()
        if not loss.lives and loss.kind != "replaced":
            loss = evolve(loss, lives=tuple(reversed(lives)))
        lives.append(incarnation)
        options = {"directory_id": directory or f"{node:032x}", "incarnation": incarnation, "loss": loss, "rack": None, **options}
        self.nodes[node] = Node(self, node, self.disks.setdefault(node, {}), options)
        self._drain(self.nodes[node])
        self._tick(self.nodes[node])
        if settle:
            self.settle()
        return self.nodes[node]

    def kill(self, node: int, *, settle: bool = True) -> None:
        """As SIGKILL, and the session has expired."""
        self.nodes.pop(node).session.expire()
        if settle:
            self.settle()

    def bounce(self, node: int, loss: LossReport | None = None) -> Node:
        """Killed and back before the session expired: the old registration is still there."""
        old = self.nodes.pop(node).session
        self.held = [*getattr(self, "held", []), old]
        return self.start(node, loss=loss, settle=True)

    @property
    def leader(self) -> ControllerExecutor:
        """The one controller."""
        (found,) = [n for n in self.nodes.values() if n.controller.is_controller and not n.paused]
        return found.controller

    @property
    def controller_id(self) -> int:
        (found,) = [n.id for n in self.nodes.values() if n.controller.is_controller and not n.paused]
        return found

    # ---- running

    def settle(self) -> None:
        """Until nothing is under way."""
        for _ in range(STEPS_MAX):
            if not self.queue:
                return
            self.queue.popleft()()
        raise AssertionError("this never settles")

    def advance(self, ms: int) -> None:
        """Let time pass, timer by timer."""
        end = self.now_ms + ms
        for _ in range(STEPS_MAX):
            deadlines = [a.deadline_ms() for n in self._awake() for a in n.actors().values()]
            due = min((d for d in deadlines if d is not None), default=end)
            if due > end:
                break
            self.now_ms = max(self.now_ms, due)
            for node in self._awake():
                self._tick(node)
            self.settle()
            if due == end:
                break
        self.now_ms = end

    def _awake(self) -> list[Node]:
        return [n for n in self.nodes.values() if not n.paused]

    def _tick(self, node: Node) -> None:
        for address, actor in node.actors().items():
            actor.tick(self.now_ms, self.wall_ms)
            self._take(node, address, actor)

    def _drain(self, node: Node) -> None:
        for address, actor in node.actors().items():
            self._take(node, address, actor)

    def _take(self, node: Node, address: Any, actor: Any) -> None:
        box = actor.outbox
        messages, box.messages = box.messages, []
        calls, box.calls = box.calls, []
        self.events += box.events
        box.events.clear()
        for to, message in messages:
            self.send(address, to, message)
        for call in calls:
            self.queue.append(lambda call=call: self._store_call(node, address, actor, call))

    def send(self, sender: Any, to: Any, message: Any) -> None:
        if isinstance(message, ReplicasFailed) and message.broker_epoch == self.nodes[sender].broker.broker_epoch:
            self.nodes[sender].broker.failed.update(message.partitions or self.nodes[sender].broker.copies)
        self.sent.append((sender, to, message))
        if not self.drop(sender, to, message):
            self.queue.append(lambda: self._deliver(sender, to, message))

    def _deliver(self, sender: Any, to: Any, message: Any) -> None:
        if to == "client":
            self.client.append(message)
            return
        node = self.nodes.get(to if isinstance(to, int) else to[1])
        if node is None or (node.paused and not isinstance(to, int)):
            return
        if isinstance(to, int):
            answer = None if node.broker.mute else node.broker.receive(message)
            if answer is not None:
                self.send(to, sender, answer)
            return
        self.give(node, to, sender, message)

    def give(self, node: Node, address: Any, sender: Any, message: Any) -> None:
        """Hand a message to an actor, if its process still lives."""
        if self.nodes.get(node.id) is node and not node.paused:
            actor = node.actors()[address]
            actor.receive(sender, message, self.now_ms)
            self._take(node, address, actor)

    def _store_call(self, node: Node, address: Any, actor: Any, call: StoreCall) -> None:
        if self.nodes.get(node.id) is not node or node.paused:
            return
        self.calls[call.verb] += 1
        fault = self.before_store(address, call)
        result = StoreResult(call.call, error=UnknownOutcome("connection lost"))
        if fault != "lost":
            done = self._store(node, address, call)
            result = result if fault == "applied" else done
        self.after_store(address, call)
        self.queue.append(lambda: self.give(node, address, None, result))

    def _store(self, node: Node, address: Any, call: StoreCall) -> StoreResult:
        store = node.session
        try:
            if call.verb == "watch":
                store.watch(call.argument, lambda path: self._fired(node, address, path))
                return StoreResult(call.call)
            if address[0] == "controller" and call.verb.startswith("commit"):
                self.commits += [call.argument] if call.verb == "commit" else call.argument
            return StoreResult(call.call, getattr(store, call.verb)(call.argument))
        except ReplogError as error:
            return StoreResult(call.call, error=error)

    def _fired(self, node: Node, address: Any, path: str) -> None:
        if not self.drop_watches:
            self.queue.append(lambda: self.give(node, address, None, WatchFired(path)))

    def session(self, node: int, state: str) -> None:
        """Tell a node's actors about its session."""
        for address in self.nodes[node].actors():
            self.give(self.nodes[node], address, None, SessionChanged(state))  # type: ignore[arg-type]

    # ---- asking

    def admin(self, verb: str, *, at: int | None = None, settle: bool = True, **arguments: Any) -> AdminAnswer | None:
        """Ask the controller; the answer, if one came."""
        before = len(self.client)
        target = self.controller_id if at is None else at
        self.send("client", ("controller", target), Admin(len(self.sent), verb, arguments, origin=7))
        if not settle:
            return None
        self.settle()
        return self.client[-1] if len(self.client) > before else None

    def create(self, name: str = "t", **arguments: Any) -> bytes:
        answer = self.admin("create_topic", name=name, **arguments)
        assert answer is not None
        assert answer.error == Code.NONE, answer.message
        return bytes.fromhex(answer.result["topic_id"])

    def state(self, partition: int = 0, topic: str = "t") -> PartitionState:
        """As stored."""
        path = layout.partition_state_path(topic, partition)
        value = self.store.read(path)
        assert value is not None, f"no state at {path}"
        return layout.decode_partition_state(path, value)

    def propose(
        self, leader: int, partition: PartitionId, isr: list[int], *, settle: bool = True, lives: Any = (), **changes: Any
    ) -> Any:
        """The leader's wish, built from what it was told; the result of the one entry, or the whole answer on an error."""
        node = self.nodes[leader]
        known = node.broker.states[partition].state
        now = {b: node.membership.broker_epoch for b, node in self.nodes.items()}
        pairs = [(b, dict(lives).get(b, now.get(b, -1))) for b in isr]
        request = len(self.sent)
        fields = {"leader_epoch": known.leader_epoch, "partition_epoch": known.partition_epoch, "isr": pairs, "proposal": request}
        fields |= changes
        epoch = fields.pop("broker_epoch", node.membership.broker_epoch)
        term = fields.pop("controller_epoch", node.broker.controller_epoch)
        entry = AlterIsrEntry(partition, **fields)
        self.send(leader, ("controller", self.controller_id), AlterIsr(request, leader, epoch, [entry], term))
        if not settle:
            return None
        self.settle()
        (answer,) = [a for a in node.broker.answers if isinstance(a, AlterIsrAnswer) and a.request == request]
        return answer if answer.error else answer.entries[0]

    def heartbeat(self, node: int) -> None:
        broker = self.nodes[node].broker
        beat = Heartbeat(node, broker.broker_epoch, broker.controller_epoch, broker.notice)
        self.send(node, ("controller", self.controller_id), beat)
        self.settle()

    def told(self, name: str) -> list[dict[str, Any]]:
        return [event.fields for event in self.events if event.name == name]


def pid(topic_id: bytes, partition: int = 0) -> PartitionId:
    return PartitionId(topic_id, partition, 0)
