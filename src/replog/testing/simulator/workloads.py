"""What clients do while faults happen: each workload is a coroutine per client, which ends when the time of faults does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from replog.client.operations import AT_EARLIEST, AT_LATEST
from replog.client.writer import Writer
from replog.errors import Code, LogTruncated, OffsetOutOfRange, ReplogError
from replog.messages import FlushAll, Leave, ListedOffset
from replog.metadata import layout
from replog.metadata.wishes import encode_elect
from replog.ports import Create
from replog.testing.simulator.clients import TOPIC, SimulatedClient
from replog.testing.simulator.consume import Consume
from replog.testing.simulator.decide import Decide
from replog.testing.simulator.known import Known, is_lost, told_lost
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.once import Once
from replog.testing.simulator.produce import Produce
from replog.testing.simulator.reassign import Reassign
from replog.testing.simulator.restored import Restored
from replog.testing.simulator.sought import Seek
from replog.testing.simulator.workload import Workload

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node

__all__ = [
    "WORKLOADS", "Append", "Burst", "Consume", "Decide", "Follow", "Lead", "Offsets", "Once", "Plain", "Produce", "Read", "Reassign",
    "Reshape", "Restored", "Seek", "Topics", "Workload",
]  # fmt: skip


class Append(Workload):
    """W1, W4: unique values to random partitions, most of them under acks=all, several under way at once."""

    name = "append"
    unsettled_max: ClassVar[int] = 8

    async def work(self, client: SimulatedClient) -> None:
        """Never waits for an answer, but for room."""
        writers = self.writers(client)
        under_way: list[None] = []
        while not client.world.calm:
            if len(under_way) < self.unsettled_max:
                writer = writers[0 if client.chance.random() < 0.8 else client.chance.randrange(len(writers))]
                under_way.append(None)
                client.world.spawn(f"{self.name} {client.number}", self._append(client, writer, under_way))
            await self.pause(client)

    def writers(self, client: SimulatedClient) -> list[Writer]:
        """The usual one first."""
        return [client.writer(), client.writer(acks=1)]

    async def pause(self, client: SimulatedClient) -> None:
        """Between two appends."""
        await client.think()

    def partition(self, client: SimulatedClient) -> int:
        """Where to: one partition is hotter than the others (W2)."""
        return 0 if client.chance.random() < 0.3 else client.chance.randrange(client.world.plan.shape.partitions)

    def count(self, client: SimulatedClient) -> int:
        """How many records."""
        return client.chance.choice((1, 1, 2, 4))

    async def _append(self, client: SimulatedClient, writer: Writer, under_way: list[None]) -> None:
        try:
            await client.append(TOPIC, self.partition(client), client.values(self.count(client)), writer=writer)
        except ReplogError:
            pass  # the client notes it
        finally:
            under_way.pop()


class Burst(Append):
    """Batches of 64 without a pause, then a long one."""

    name = "burst"

    def count(self, client: SimulatedClient) -> int:
        """A large batch."""
        return 64 if client.chance.random() < 0.3 else 16

    async def pause(self, client: SimulatedClient) -> None:
        """Mostly none."""
        await client.rest(1 if client.chance.random() < 0.9 else 3_000)


class Plain(Append):
    """W3: producers without idempotence, and some that nobody answers (acks=0)."""

    name = "plain"
    unsettled_max = 3

    def writers(self, client: SimulatedClient) -> list[Writer]:
        """None with sequences."""
        return [client.writer(idempotent=False), client.writer(acks=1, idempotent=False), client.writer(acks=0)]


class Read(Workload):
    """Fetches from anywhere in what may be committed, and sometimes from beyond it (P-48)."""

    name = "read"

    async def work(self, client: SimulatedClient) -> None:
        """One at a time."""
        world = client.world
        while not world.calm:
            partition = client.chance.randrange(world.plan.shape.partitions)
            end = world.checks.committed(partition)
            offset = client.chance.randint(0, end) + (client.chance.randint(0, 3) if client.chance.random() < 0.1 else 0)
            known = Known(world, partition)
            try:
                await client.fetch(TOPIC, partition, offset, wait_ms=client.chance.choice((0, 100)), near=_is_near(client))
            except OffsetOutOfRange as error:
                newest = error.epoch is None or error.epoch >= known.epoch  # a deposed leader does not know all that was committed
                if newest and offset <= known.end and not world.is_trimmed(partition, offset):
                    raise Violation("readable", f"a read at {offset} of partition {partition}, committed {known.end}: {error}") from error
                world.marks.hit("a read fails with OffsetOutOfRange")
            except ReplogError as error:
                world.marks.hit(f"a read fails with {type(error).__name__}")
            await client.rest(client.chance.randint(1, 8 * world.plan.shape.think_ms))


class Follow(Workload):
    """W5: a consumer of one partition, from its start, through changes of leaders (KIP-320); what it reads goes into the history."""

    name = "follow"
    refused_max: ClassVar[int] = 5
    """A leader that has trimmed its log may give way to one that has not: so often the earliest offset may lie below a position that was
    out of range."""

    def __init__(self) -> None:
        self._refused: dict[int, tuple[int, int]] = {}
        """Client -> its last position that was out of range, and how often in a row."""

    async def work(self, client: SimulatedClient) -> None:
        """Goes on from where it is; starts at the beginning of the log again if that is gone."""
        world = client.world
        partition = client.chance.randrange(world.plan.shape.partitions)
        process, key = f"follower {client.number}", f"{TOPIC}/{partition}"
        position, known_epoch = 0, -1
        epochs: Sequence[tuple[int, int]] = ()
        self._refused.pop(client.number, None)
        while not world.calm:
            try:
                found = await client.fetch(
                    TOPIC,
                    partition,
                    position,
                    wait_ms=200,
                    process=process,
                    near=_is_near(client),
                    known_epoch=known_epoch,
                    epochs=epochs,
                )
            except LogTruncated as error:
                position = told_lost(world, error, known_epoch, epochs, f"consumer {client.number}")
                known_epoch, epochs = -1, ()
                world.history.assign(process, key, position)
                continue
            except OffsetOutOfRange as error:
                if not epochs and is_lost(world, partition, position):  # it has read nothing there
                    position, known_epoch = min(position, world.checks.committed(partition, TOPIC)), -1
                    world.history.assign(process, key, position)
                    await client.think()
                    continue
                if not world.is_trimmed(partition, position):
                    where = f"partition {partition} at {position}"
                    raise Violation("readable", f"a consumer of {where} is told, though no log starts above: {error}") from error
                position, known_epoch, epochs = await self._earliest(client, partition, position), -1, ()
                world.history.assign(process, key, position)
                continue
            except ReplogError as error:
                world.marks.hit(f"a consumer gets {type(error).__name__}")
                await client.think()
                continue
            position, known_epoch, epochs = found.next_offset, found.known_epoch, found.epochs
            if client.chance.random() < 0.05:
                await client.rest(2_000)  # a slow consumer (W12)

    async def _earliest(self, client: SimulatedClient, partition: int, position: int) -> int:
        client.world.marks.hit("a consumer finds that retention has taken its position")
        try:
            earliest = await client.earliest(TOPIC, partition)
        except ReplogError:
            return position
        where, times = self._refused.get(client.number, (-1, 0))
        times = times + 1 if where == position else 1
        self._refused[client.number] = position, times
        if earliest <= position and times >= self.refused_max:
            where_text = f"partition {partition} at {position}"
            raise Violation(
                "readable", f"a consumer of {where_text} is told {times} times that it is out of range, the log starts at {earliest}"
            )
        return max(position, earliest)


class Offsets(Workload):
    """Asks where logs start, how far they are committed, and which record is the first at or after a time; and reads what is there.

    A leader of an epoch that was stored before the question knows all that had been committed by then (KIP-207). One of an
    older epoch may be behind, but not behind what was answered in its epoch before.
    """

    name = "offsets"
    window: ClassVar[int] = 8
    """So many records before an answer are looked at."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, int], dict[int, int]] = {}
        """(partition, AT_EARLIEST or AT_LATEST) -> leader epoch -> the highest answer."""
        self._times: dict[int, list[int]] = {}
        """Partition -> times of records that were read."""

    async def work(self, client: SimulatedClient) -> None:
        """One question at a time."""
        world = client.world
        while not world.calm:
            partition = client.chance.randrange(world.plan.shape.partitions)
            ask = client.chance.choice((self._earliest, self._latest, self._by_time))
            try:
                await ask(client, partition)
            except ReplogError as error:
                world.marks.hit(f"an offset is not told: {type(error).__name__}")
            await client.rest(client.chance.randint(1, 8 * world.plan.shape.think_ms))

    async def _ask(self, client: SimulatedClient, partition: int, at: int) -> ListedOffset:
        """Ask for one of the ends, which moves forward only within an epoch."""
        told = self._told.setdefault((partition, at), {})
        before = dict(told)
        listed = await client.offset(TOPIC, partition, at)
        offset, epoch = listed.offset, listed.leader_epoch
        if offset < before.get(epoch, 0):
            raise Violation("offsets", f"partition {partition}: {offset} is told for {at} in epoch {epoch}, {before[epoch]} was before")
        told[epoch] = max(offset, told.get(epoch, 0))
        return listed

    async def _earliest(self, client: SimulatedClient, partition: int) -> None:
        world, listed = client.world, await self._ask(client, partition, AT_EARLIEST)
        if listed.offset > 0 and not world.is_trimmed(partition, listed.offset - 1):
            raise Violation("offsets", f"partition {partition} is said to start at {listed.offset}, no log ever started so late")
        known = Known(world, partition)
        if known.end > listed.offset:
            world.marks.hit("the earliest offset is told and read")
            await self._read(client, partition, listed.offset, known)

    async def _latest(self, client: SimulatedClient, partition: int) -> None:
        known = Known(client.world, partition)
        listed = await self._ask(client, partition, AT_LATEST)
        if listed.offset > listed.end_offset or (known.binds(listed) and listed.offset < known.end):
            ends = f"{known.end} was committed before the question, the leader's log ends at {listed.end_offset}"
            raise Violation("offsets", f"partition {partition} is said to be committed up to {listed.offset}; {ends}")
        client.world.marks.hit("the latest offset is told")

    async def _by_time(self, client: SimulatedClient, partition: int) -> None:
        world, chance = client.world, client.chance
        times = self._times.get(partition)
        at = world.wall_ms - chance.randint(0, world.now_ms)
        if times and chance.random() < 0.7:
            at = chance.choice(times) + chance.choice((-1, 0, 0, 1))
        known = Known(world, partition)
        listed = await client.offset(TOPIC, partition, at)
        none = listed.offset < 0
        if none and not known.binds(listed):
            return
        limit = known.end if none else listed.offset
        read = await self._read(client, partition, max(listed.start_offset, limit - self.window), known)
        for offset, time_ms in read if known.holds_in(listed.leader_epoch) else ():
            if (offset < limit and time_ms >= at) or (offset == listed.offset and time_ms < at):
                where = f"partition {partition}: {listed.offset} is told for {at}"
                raise Violation("offsets", f"{where}, and the record at {offset} is of {time_ms}, committed before were {known.end}")
        world.marks.hit("a time has no record yet" if none else "a time is told its record")

    async def _read(self, client: SimulatedClient, partition: int, position: int, known: Known) -> list[tuple[int, int]]:
        """(offset, time) of the records from a position on that there is, unless retention takes it meanwhile, or an election."""
        try:
            found = await client.fetch(TOPIC, partition, position)
        except OffsetOutOfRange as error:
            if not client.world.is_trimmed(partition, position) and not is_lost(client.world, partition, position):
                raise Violation("offsets", f"partition {partition} at {position}, as it was told: {error}") from error
            raise
        read = [(record.offset, record.timestamp_ms or 0) for record in found.records] if known.holds_in(found.known_epoch) else []
        if read:
            times = self._times.setdefault(partition, [])
            times.append(client.chance.choice(read)[1])
            del times[:-20]
        return read


class Reshape(Workload):
    """W10: gives one topic more partitions and fewer, and another configuration, while it is appended to and others do so too."""

    name = "reshape"
    partitions_max: ClassVar[int] = 4

    async def work(self, client: SimulatedClient) -> None:
        """One topic for all clients, beside the run's own."""
        world, chance = client.world, client.chance
        writer = client.writer()
        while not world.calm:
            if "shaped" not in client.core.view.topics:
                await self._ask(client, "create_topic", client.topic_wish("shaped", 2))
            verb = chance.choice(("add_partitions", "remove_partitions", "alter_topic", "alter_topic"))
            await self._ask(client, verb, {"name": "shaped", **self._wish(client, verb)})
            for _ in range(chance.randint(0, 5)):
                known = client.core.view.topics.get("shaped")
                if known is None or not known.partitions or world.calm:
                    break
                with suppress(ReplogError):
                    await client.append("shaped", chance.choice(known.numbers()), client.values(chance.choice((1, 3))), writer=writer)
                await client.think()
            await client.rest(chance.choice((20, 500, 2_000, 6_000)))

    def _wish(self, client: SimulatedClient, verb: str) -> dict[str, Any]:
        """What to ask for: mostly something that can be granted."""
        chance, shape = client.chance, client.world.plan.shape
        known = client.core.view.topics.get("shaped")
        numbers = known.numbers() if known is not None else [0]
        if verb == "add_partitions":
            return {"total": min(self.partitions_max, len(numbers) + chance.choice((0, 1, 1, 2)))}
        if verb == "remove_partitions":
            going = numbers[-chance.choice((1, 1, 1, 2)) :]
            if known is None or chance.random() < 0.2:
                return {"partitions": going}
            creations = [known.places[number].identity.creation for number in going]
            return {"partitions": going, "topic_id": known.topic_id.hex(), "creations": creations}
        if chance.random() < 0.7:  # never below what faults spare: see `power_some`
            return {"config": {"min_isr": chance.randint(shape.min_isr, max(shape.min_isr, shape.replicas - shape.absent))}}
        before = shape.flush  # where that is "ack", power fails everywhere at once, and nothing less would do
        flushes = ({"flush_interval_ms": None}, {"flush_interval_ms": 100, "flush": "ack"}, {"flush_interval_ms": 300, "flush": before})
        return {"config": {"segment_bytes": chance.choice((256, 1_024, 65_536)), **chance.choice(flushes)}}

    async def _ask(self, client: SimulatedClient, verb: str, arguments: dict[str, Any]) -> None:
        marks, code = client.world.marks, {"create_topic": Code.TOPIC_ALREADY_EXISTS}
        try:
            await client.admin(verb, arguments, granted_code=code.get(verb, 0))
            marks.hit(f"{verb} is granted while faults happen")
        except ReplogError as error:
            marks.hit(f"{verb} is not granted: {type(error).__name__}")


class Lead(Workload):
    """W8, W9: asks for elections, by request and in the store; drains brokers or has them leave, one by one, and restarts them."""

    name = "lead"

    def __init__(self) -> None:
        self._busy = False
        """Whether a broker is leaving now: only one at a time."""

    async def work(self, client: SimulatedClient) -> None:
        """One thing at a time."""
        world, chance = client.world, client.chance
        while not world.calm:
            what = chance.random()
            if what < 0.5:
                await self._elect(client)
            elif what < 0.65:
                self._write(client)
            elif not self._busy:
                self._busy = True
                await self._retire(client, world.nodes[chance.randint(1, world.plan.shape.brokers)])
                self._busy = False
            await client.rest(chance.choice((20, 500, 2_000, 5_000)))

    async def _elect(self, client: SimulatedClient) -> None:
        """Of one partition, or of all; never uncleanly: that is for those who decide (`Decide`)."""
        marks, partition = client.world.marks, client.chance.randrange(client.world.plan.shape.partitions)
        named = None if client.chance.random() < 0.3 else [[TOPIC, partition]]
        to = client.chance.randint(1, client.world.plan.shape.brokers) if named and client.chance.random() < 0.4 else None
        try:
            result = await client.admin("elect", {"partitions": named, "unclean": False, "to": to})
        except ReplogError as error:
            marks.hit(f"an election is not answered: {type(error).__name__}")
            return
        for *_, code, _ in result["partitions"]:
            who = "a preferred leader" if to is None else "a leader that was named"
            marks.hit(f"{who} is not elected" if code else f"{who} is elected while faults happen")

    def _write(self, client: SimulatedClient) -> None:
        """A tool that only knows the store."""
        world = client.world
        path = layout.elect_path(TOPIC, client.chance.randrange(world.plan.shape.partitions))
        to = client.chance.choice((None, None, client.chance.randint(1, world.plan.shape.brokers)))
        ops = [Create(path, encode_elect(to=to) if client.chance.random() < 0.9 else b"{")]
        with suppress(ReplogError):  # there is one already
            world.root.commit(ops)
            world.applied(ops)
            world.marks.hit("a wish for an election is written into the store")

    async def _retire(self, client: SimulatedClient, node: Node) -> None:
        """Drain it, or have it ask to leave; whatever comes of it, this life of it ends, and another begins."""
        world, life, broker = client.world, node.life, node.broker
        if not node.alive or broker is None:
            return
        if client.chance.random() < 0.4:
            with suppress(ReplogError):
                wish = {"broker": node.broker_id, "broker_epoch": broker.broker_epoch}
                await client.admin("drain", wish, timeout_ms=3_000)
                world.marks.hit("a broker is drained while faults happen")
        else:
            node.deliver(life, node.broker_id, None, Leave())
        for _ in range(client.chance.choice((5, 30, 60))):
            if world.calm or node.life != life or broker.leaving.is_over:
                break
            await client.rest(100)
        if node.life == life:
            node.deliver(life, node.broker_id, None, FlushAll())
            await client.rest(20)
            if broker.upkeep.left_to_flush:
                world.marks.hit("a broker is stopped while its logs are flushed for that")
        if node.alive and node.life == life:
            world.marks.hit("a broker leaves when it may" if broker.leaving.is_over else "a broker leaves before it may")
            node.stop()
            world.at(150, node.start)


class Topics(Workload):
    """W6: creates topics, appends to them, deletes them, and creates them again under the same name, while others do so too."""

    name = "topics"

    async def work(self, client: SimulatedClient) -> None:
        """One topic after another, two names for all clients."""
        world = client.world
        while not world.calm:
            name = client.chance.choice(("churn", "other"))
            try:
                await client.admin("create_topic", client.topic_wish(name, client.chance.choice((1, 1, 2))), granted_code=36)
                world.marks.hit("a topic is created while faults happen")
            except ReplogError as error:
                world.marks.hit(f"a topic is not created: {type(error).__name__}")
            await self._append(client, name)
            if client.chance.random() < 0.7 and not world.calm:
                try:
                    await client.admin("delete_topic", {"name": name}, granted_code=3)
                    world.marks.hit("a topic is deleted while faults happen")
                except ReplogError as error:
                    world.marks.hit(f"a topic is not deleted: {type(error).__name__}")
            await client.rest(client.chance.randint(1, 2_000))

    async def _append(self, client: SimulatedClient, name: str) -> None:
        writer = client.writer()
        for _ in range(client.chance.randint(0, 6)):
            if client.world.calm:
                return
            try:
                await client.append(name, 0, client.values(client.chance.choice((1, 3))), writer=writer)
            except ReplogError:
                return
            await client.think()


def _is_near(client: SimulatedClient) -> bool:
    """Whether to read from a copy in the client's rack. Where there are no racks nothing is drawn."""
    return bool(client.world.plan.shape.racks) and client.chance.random() < 0.5


_KINDS: tuple[type[Workload], ...] = (
    Append, Read, Follow, Topics, Plain, Burst, Offsets, Reassign, Reshape, Lead, Restored, Once, Produce, Consume, Decide, Seek,
)  # fmt: skip
WORKLOADS: dict[str, type[Workload]] = {kind.name: kind for kind in _KINDS}
"""Those that a plan can name."""
