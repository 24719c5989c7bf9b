"""Clients of the simulated cluster: each appends records that nobody else appends, and reads here and there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define

from replog.client.batches import Batch
from replog.client.core import ClientCore
from replog.client.fetching import FetchOp
from replog.client.operations import AdminOp, Operation
from replog.client.writer import Writer
from replog.messages import Disconnected
from replog.model import ACKS_ALL, ACKS_LEADER, Address
from replog.testing.clock import SeededIds
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.plan import stream

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["TOPIC", "Acknowledged", "SimulatedClient"]

TOPIC = "t"
_UNSETTLED_MAX = 8


@define
class Acknowledged:
    """A batch that a client was told is stored for good."""

    partition: int
    base_offset: int
    values: list[bytes]


@define
class _Sent:
    batch: Batch
    writer: Writer
    values: list[bytes]


class SimulatedClient:
    """A real client core with a workload. Its appends under acks=all that were confirmed are kept for the end of the run."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.address: Address = ("client", number)
        self.number = number
        self._chance = stream(world.plan.seed, f"client {number}")
        ids = SeededIds(stream(world.plan.seed, f"client ids {number}").getrandbits(63))
        shape = world.plan.shape
        self.core = ClientCore(
            self.address, config=shape.client_config(), ids=ids, bootstrap=list(range(1, shape.brokers + 1))
        )
        self._writers = [
            self.core.open_writer(acks=ACKS_ALL, idempotent=True, compression=None, batch_bytes=16_384),
            self.core.open_writer(acks=ACKS_LEADER, idempotent=True, compression=None, batch_bytes=16_384),
        ]
        self._sent: list[_Sent] = []
        self._reads: list[FetchOp] = []
        self._wake_ms: int | None = None
        self._values = 0
        self.acknowledged: list[Acknowledged] = []
        self.failed = 0
        self.reads = 0

    # ------------------------------------------------------------------------------------------------------- workload

    def work(self) -> None:
        """One step: append or read, then think."""
        world = self.world
        if world.calm:
            return
        partition = self._chance.randrange(world.plan.shape.partitions)
        if self._chance.random() < 0.2:
            self.read(partition)
        elif sum(not sent.batch.done for sent in self._sent) < _UNSETTLED_MAX:
            self.append(partition, acks_all=self._chance.random() < 0.8)
        world.at(self._chance.randint(1, 2 * world.plan.shape.think_ms), self.work)

    def probe(self, partition: int) -> Batch:
        """Append with a producer of its own: what became of earlier appends does not hold it back."""
        writer = self.core.open_writer(acks=ACKS_ALL, idempotent=True, compression=None, batch_bytes=16_384)
        self._writers.append(writer)
        return self._append(partition, writer)

    def append(self, partition: int, *, acks_all: bool) -> Batch:
        """Append a small batch."""
        return self._append(partition, self._writers[0 if acks_all else 1])

    def _append(self, partition: int, writer: Writer) -> Batch:
        world = self.world
        queue = writer.queue(TOPIC, partition)
        batch = queue.begin(world.now_ms, world.wall_ms, self.core.config.delivery_timeout_ms)
        values = []
        for _ in range(self._chance.choice((1, 1, 2, 4))):
            self._values += 1
            values.append(f"{self.number}:{self._values}:".encode().ljust(self._chance.choice((8, 40, 400)), b"."))
            batch.add(values[-1])
        self._sent.append(_Sent(batch, writer, values))
        queue.seal()
        self.core.kick(queue, world.now_ms)
        self._after()
        return batch

    def read(self, partition: int) -> None:
        """Fetch from anywhere in what may be committed."""
        end = self.world.checks.committed(partition)
        op = FetchOp(
            TOPIC,
            partition,
            self._chance.randint(0, end),
            max_bytes=4_096,
            wait_ms=self._chance.choice((0, 100)),
            deadline_ms=self.world.now_ms + 5_000,
        )
        self._reads.append(op)
        self.submit(op)

    def submit(self, op: Operation) -> Operation:
        """Start an operation."""
        self.core.submit(op, self.world.now_ms)
        self._after()
        return op

    def create_topic(self) -> Operation:
        """Ask for the one topic of the run."""
        shape = self.world.plan.shape
        arguments = {
            "name": TOPIC,
            "partitions": shape.partitions,
            "replication_factor": shape.replicas,
            "config": shape.topic_config().to_mapping(),
        }
        return self.submit(AdminOp("create_topic", arguments, self.world.now_ms + 60_000, granted_code=36))

    # ------------------------------------------------------------------------------------------------------ its actor

    def receive(self, sender: Address, message: Any) -> None:
        """A message arrives."""
        world = self.world
        if not isinstance(message, Disconnected):
            world.trace_message(self.address, sender, message)
        try:
            self.core.receive(sender, message, world.now_ms)
        except Exception as problem:
            raise Violation("crash", f"{self.address} at {type(message).__name__}: {problem!r}") from problem
        self._after()

    def _wake(self, due_ms: int) -> None:
        if self._wake_ms == due_ms:
            self._wake_ms = None
            self._after()

    def _after(self) -> None:
        world, core = self.world, self.core
        try:
            core.tick(world.now_ms, world.wall_ms)
        except Exception as problem:
            raise Violation("crash", f"{self.address} at a tick: {problem!r}") from problem
        messages, core.outbox.messages = core.outbox.messages, []
        for to, message in messages:
            world.send(self.address, to, message)
        self._settle()
        due = core.deadline_ms()
        if due is not None:
            due = max(due, world.now_ms + 1)
            if self._wake_ms is None or due < self._wake_ms:
                self._wake_ms = due
                world.at(due - world.now_ms, self._wake, due)

    def _settle(self) -> None:
        if not any(sent.batch.done for sent in self._sent) and not any(op.done for op in self._reads):
            return
        settled = [sent for sent in self._sent if sent.batch.done]
        self._sent = [sent for sent in self._sent if not sent.batch.done]
        for sent in settled:
            batch = sent.batch
            if batch.error is not None:
                self.failed += 1
                self.world.note(f"{self.number} fails {sent.values[0][:12]!r}: {type(batch.error).__name__}")
            elif sent.writer.acks == ACKS_ALL:
                assert batch.base_offset is not None
                self.acknowledged.append(Acknowledged(batch.queue.partition, batch.base_offset, sent.values))
        self.reads += sum(op.done and op.error is None for op in self._reads)
        self._reads = [op for op in self._reads if not op.done]
