"""A client of the simulated cluster: the real client core, and operations on it that a workload can await."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from attrs import define, evolve, frozen

from replog.client.batches import Batch
from replog.client.client import Client
from replog.client.core import ClientCore
from replog.client.delivery import run_callbacks
from replog.client.fetching import FetchOp
from replog.client.offsets import OffsetOp
from replog.client.once import AppendOnceOp, PublishOp, StageOp
from replog.client.operations import AT_EARLIEST, AdminOp, Operation
from replog.client.unpacking import Unpacked, unpack_all
from replog.client.writer import Writer
from replog.errors import ReplogError, UsageError
from replog.messages import Disconnected, ListedOffset, Published, Unreached
from replog.model import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Address, PartitionId
from replog.testing.clock import SeededIds
from replog.testing.history.events import Poll
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.plan import BATCH_BYTES, stream
from replog.testing.simulator.racks import NearFetch, rack_of
from replog.testing.simulator.tasks import Signal
from replog.testing.simulator.virtual_driver import VirtualDriver

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["TOPIC", "Acknowledged", "Image", "SimulatedClient", "text_of"]

TOPIC = "t"
"""The topic that every run has from its beginning to its end."""

Acks = Literal[0, 1, "all"]
_ACKS = {0: ACKS_NONE, 1: ACKS_LEADER, "all": ACKS_ALL}


def text_of(value: bytes | None) -> str:
    """A value as the history has it: any bytes, one to one."""
    return "" if value is None else value.decode("latin-1")


@define
class Acknowledged:
    """A batch that a client was told is stored for good."""

    identity: PartitionId
    base_offset: int
    values: list[bytes]

    @property
    def partition(self) -> int:
        """Its number."""
        return self.identity.partition


@frozen
class Image:
    """A producer as an image of its machine has it."""

    producer_id: int
    places: dict[tuple[str, int], tuple[PartitionId | None, int, int]]
    """(topic, partition) -> the log it is about, its producer epoch, the sequence that comes next."""


class _Until:
    """Something that is awaited because somebody blocks until it is the case."""

    __slots__ = ("_is_met",)
    error = None

    def __init__(self, is_met: Callable[[], bool]) -> None:
        self._is_met = is_met

    @property
    def done(self) -> bool:
        """Whether it is."""
        return self._is_met()


class SimulatedClient:
    """A real client core on virtual time. Its appends under acks=all that were confirmed are kept for the end of the run."""

    life = 0
    """Clients do not die; messages to them are not for one life."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.address: Address = ("client", number)
        self.number = number
        self.chance = stream(world.plan.seed, f"client {number}")
        ids = SeededIds(stream(world.plan.seed, f"client ids {number}").getrandbits(63))
        shape = world.plan.shape
        self.core = ClientCore(self.address, config=shape.client_config(), ids=ids, bootstrap=list(range(1, shape.brokers + 1)))
        self._numbers: WeakKeyDictionary[Writer, int] = WeakKeyDictionary()
        """Weak, as in the core: a workload that opens one producer after another, for an hour, leaves them behind."""
        self._opened = 0
        self._waiting: list[tuple[Batch | Operation | _Until, Signal]] = []
        self._wake_ms: int | None = None
        self._values = 0
        self._moved = 0
        self.acknowledged: list[Acknowledged] = []
        self.failed = 0
        self.reads = 0
        self.blocking = Client(VirtualDriver(self))
        """What users have: its calls block, so they are for strands (`strands.py`)."""

    # ----------------------------------------------------------------------------------------------------- for workloads

    def writer(self, *, acks: Acks = "all", idempotent: bool = True) -> Writer:
        """A new producer: its own id, its own order."""
        compression: Literal["lz4"] | None = "lz4" if self.world.plan.shape.compression else None
        made = self.core.open_writer(acks=_ACKS[acks], idempotent=idempotent, compression=compression, batch_bytes=BATCH_BYTES)
        self._numbers[made] = self._opened
        self._opened += 1
        if not idempotent:
            settings = self.world.history.settings
            self.world.history.settings = evolve(settings, idempotent=False)
        return made

    def image(self, writer: Writer) -> Image:
        """What an image of its machine would hold of a producer now. Nothing may be under way."""
        assert next(writer.unsettled(), None) is None, "a batch is under way"
        return Image(writer.producer_id, {key: (one.identity, one.epoch, one.next_sequence) for key, one in writer.queues.items()})

    def restored(self, image: Image) -> Writer:
        """The producer of an image, as it was: it does not know what it has done since."""
        made = self.writer()
        made.producer_id = image.producer_id
        for (topic, partition), place in image.places.items():
            queue = made.queue(topic, partition)
            queue.identity, queue.epoch, queue.next_sequence = place
        return made

    def values(self, count: int) -> list[bytes]:
        """So many values that nobody else appends."""
        made = []
        for _ in range(count):
            self._values += 1
            made.append(f"{self.number}:{self._values}:".encode().ljust(self.chance.choice((8, 40, 400)), b"."))
        return made

    async def append(self, topic: str, partition: int, values: Sequence[bytes], *, writer: Writer) -> int | None:
        """Append a batch; the offset of its first record (None under acks=0). Raises what a producer's delivery raises."""
        return await self._record(self.begin(topic, partition, values, writer), values, writer)

    async def _record(self, batch: Batch, values: Sequence[bytes], writer: Writer) -> int | None:
        call, topic = None, batch.queue.topic
        if topic == TOPIC:
            acks: Any = "all" if writer.acks == ACKS_ALL else writer.acks
            process = f"{self.number}.{self._numbers[writer]}"
            call = self.world.history.invoke_send(process, f"{topic}/{batch.queue.partition}", [text_of(value) for value in values], acks)
        try:
            await self._done(batch)
        except ReplogError as error:
            self.failed += 1
            self.world.note(f"{self.number} fails {values[0][:12]!r}: {type(error).__name__}")
            self.world.marks.hit(f"an append fails with {type(error).__name__}")
            if call is not None:
                call.fail() if batch.sent_ms < 0 else call.info()  # what never left proves that it was not stored
            raise
        if call is not None:
            call.ok(batch.base_offset)
        if writer.acks == ACKS_ALL:
            assert batch.base_offset is not None
            assert batch.queue.identity is not None
            self.acknowledged.append(Acknowledged(batch.queue.identity, batch.base_offset, list(values)))
        return batch.base_offset

    async def append_once(self, topic: str, partition: int, body: bytes) -> tuple[PartitionId, int]:
        """Append a batch that bears the mark of its writer (`replog.marks.framing`), unless its version, or a later one, is there. Where it
        is, or what was stored first (-1: gone, or later). Raises what `Cluster.append_once` raises."""
        op = AppendOnceOp(topic, partition, body, self.world.now_ms + self.core.config.delivery_timeout_ms)
        await self.run(op)
        assert op.place is not None
        return op.place.identity, op.result[0]

    async def stage(self, topic: str, partition: int, body: bytes, *, writer: str, version: int, attempt: str, number: int) -> bool:
        """Put a batch aside; False if this work is done already. Raises what `Cluster.stage` raises."""
        deadline_ms = self.world.now_ms + self.core.config.delivery_timeout_ms
        work: dict[str, Any] = {"writer": writer, "version": version, "attempt": attempt, "number": number}
        said: Published = await self.run(StageOp(topic, partition, deadline_ms, body=body, **work))
        return said.end_offset < 0

    async def publish(
        self, topic: str, partition: int, attempts: Sequence[tuple[str, int]], *, writer: str, version: int
    ) -> tuple[PartitionId, int, int]:
        """Append all that these attempts, (name, number of pieces) each, have put aside; which log it is in, and from where to where
        (-1: gone, or later). Raises what `Cluster.publish` raises."""
        deadline_ms = self.world.now_ms + self.core.config.delivery_timeout_ms
        work: dict[str, Any] = {"writer": writer, "version": version, "made_ms": self.world.wall_ms}
        op = PublishOp(topic, partition, deadline_ms, **work, attempts=attempts)
        said: Published = await self.run(op)
        return said.partition, said.base_offset, said.end_offset

    async def run(self, op: Operation) -> Any:
        """Do any operation of the client; its result, or what it raises."""
        self.submit(op)
        await self._done(op)
        return op.result

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 4_096,
        wait_ms: int = 0,
        process: str | None = None,
        near: bool = False,
        **position: Any,
    ) -> Unpacked:
        """Fetch committed records from an offset on. Raises what `Cluster.fetch` raises.

        The history has it as a poll of `process`, which reads on from where its last one ended unless the history says otherwise;
        without a process, as a poll by itself. With `near` an in-sync copy in this client's rack is asked first, if it has one.
        """
        poll = self._poll(topic, partition, offset, process)
        given = {"max_bytes": max_bytes, "wait_ms": wait_ms, "deadline_ms": self.world.now_ms + 5_000, **position}
        rack = rack_of(self.world.plan.shape.racks, self.number) if near else None
        op = FetchOp(topic, partition, offset, **given) if rack is None else NearFetch(topic, partition, offset, rack=rack, **given)
        self.submit(op)
        try:
            await self._done(op)
            found = unpack_all(op)
        except ReplogError:
            if poll is not None:
                poll.info()
            raise
        self.reads += 1
        near = isinstance(op, NearFetch) and op.near  # a copy may know an earlier high watermark than readers were shown
        if found.records and near:
            self.world.marks.hit("a copy in the rack is read")
        if poll is not None:
            watermark = None if near else found.high_watermark
            poll.ok([(record.offset, text_of(record.value)) for record in found.records], watermark, found.known_epoch)
        return found

    def _poll(self, topic: str, partition: int, offset: int, process: str | None) -> Poll | None:
        """Note that a fetch begins, if the history is about that topic."""
        if topic != TOPIC:
            return None
        history, key = self.world.history, f"{topic}/{partition}"
        if process is None:
            process = f"reader {self.number}"
            history.assign(process, key, offset)
        return history.invoke_poll(process, key, offset)

    async def earliest(self, topic: str, partition: int) -> int:
        """Where the log starts now. Raises what `Cluster.offset` raises."""
        return (await self.offset(topic, partition, AT_EARLIEST)).offset

    async def offset(self, topic: str, partition: int, at: int) -> ListedOffset:
        """An offset: AT_EARLIEST, AT_LATEST, or the first at or after a time in ms (-1: none). Raises what `Cluster.offset` raises."""
        op = OffsetOp(topic, partition, at, self.world.now_ms + 5_000)
        self.submit(op)
        await self._done(op)
        return op.result  # type: ignore[no-any-return]

    async def admin(self, verb: str, arguments: dict[str, Any], *, granted_code: int = 0, timeout_ms: int = 30_000) -> dict[str, Any]:
        """A wish to the controller. Raises what `Cluster.create_topic` and the like raise."""
        op = AdminOp(verb, arguments, self.world.now_ms + timeout_ms, granted_code=granted_code)
        self.submit(op)
        await self._done(op)
        return op.result  # type: ignore[no-any-return]

    async def rest(self, ms: int) -> None:
        """Let virtual time pass."""
        await self.world.timer(ms)

    async def think(self) -> None:
        """A pause as long as clients of this run make them."""
        await self.world.timer(self.chance.randint(1, 2 * self.world.plan.shape.think_ms))

    # ------------------------------------------------------------------------------------------------- without waiting

    def begin(self, topic: str, partition: int, values: Sequence[bytes], writer: Writer) -> Batch:
        """Send a batch on its way. Each of its records has a time of its own: a place by time lies within batches too."""
        if not values:
            raise UsageError(f"values is {values!r}: a batch has one record at least")
        world = self.world
        queue = writer.queue(topic, partition)
        batch = queue.begin(world.now_ms, world.wall_ms, self.core.config.delivery_timeout_ms)
        for index, value in enumerate(values):
            batch.add(value, timestamp_ms=world.wall_ms + index)
        queue.seal()
        self.core.kick(queue, world.now_ms)
        self.turn()
        return batch

    def probe(self, partition: int, topic: str = TOPIC) -> Batch:
        """Append with a producer of its own: what became of earlier appends does not hold it back."""
        writer, values = self.writer(), self.values(1)
        batch = self.begin(topic, partition, values, writer)
        self.world.spawn(f"probe {self.number}", self._record(batch, values, writer))
        return batch

    def submit(self, op: Operation) -> Operation:
        """Start an operation."""
        self.core.submit(op, self.world.now_ms)
        self.turn()
        return op

    def create_topic(self) -> Operation:
        """Ask for the topic that every run has."""
        return self.submit(AdminOp("create_topic", self.topic_wish(TOPIC), self.world.now_ms + 60_000, granted_code=36))

    def topic_wish(self, name: str, partitions: int | None = None) -> dict[str, Any]:
        """What `create_topic` takes, for a topic of this run's shape."""
        shape = self.world.plan.shape
        return {
            "name": name,
            "partitions": partitions or shape.partitions,
            "replication_factor": shape.replicas,
            "config": shape.topic_config().to_mapping(),
        }

    # ------------------------------------------------------------------------------------------------------ its actor

    def deliver(self, life: int, to: Address, sender: Address, message: Any) -> None:
        """A message arrives."""
        world = self.world
        if not isinstance(message, Disconnected | Unreached):
            world.trace_message(self.address, sender, message)
        try:
            self.core.receive(sender, message, world.now_ms)
        except Exception as problem:
            raise Violation("crash", f"{self.address} at {type(message).__name__}: {problem!r}") from problem
        self.turn()
        self._call_back()

    def _wake(self, due_ms: int) -> None:
        if self._wake_ms == due_ms:
            self._wake_ms = None
            self.turn()
            self._call_back()

    def _call_back(self) -> None:
        """As the thread that finishes what producers leave behind."""
        if self.core.finished:
            run_callbacks(self.core)

    def turn(self) -> None:
        """Run timers that are due, and send what the core says."""
        world, core = self.world, self.core
        try:
            core.tick(world.now_ms, world.wall_ms)
        except Exception as problem:
            raise Violation("crash", f"{self.address} at a tick: {problem!r}") from problem
        if core.moved > self._moved:
            self._moved = core.moved
            world.marks.hit("a request leaves a silent leader for the new one")
        messages, core.outbox.messages = core.outbox.messages, []
        for to, message in messages:
            world.send(self.address, to, message)
        if self._waiting:
            self._settle()
        due = core.deadline_ms()
        if due is not None:
            due = max(due, world.now_ms + 1)
            if self._wake_ms is None or due < self._wake_ms:
                self._wake_ms = due
                world.at(due - world.now_ms, self._wake, due)

    def until(self, is_met: Callable[[], bool], ms: int | None) -> Signal:
        """When something is the case, or so much time has passed (None: however long it takes)."""
        signal = Signal()
        self._waiting.append((_Until(is_met), signal))
        if ms is not None:
            self.world.at(ms, signal.set)
        return signal

    def _done(self, what: Batch | Operation) -> Signal:
        signal = Signal()
        self._waiting.append((what, signal))
        self._settle()
        return signal

    def _settle(self) -> None:
        waiting = self._waiting
        if not any(what.done or signal.done for what, signal in waiting):
            return
        self._waiting = [(what, signal) for what, signal in waiting if not what.done and not signal.done]
        for what, signal in waiting:
            if what.done:
                signal.set() if what.error is None else signal.fail(what.error)
