"""What clients do while faults happen: each workload is a coroutine per client, which ends when the time of faults does.

To simulate a system of your own, subclass `Workload`, give it to `run(..., workloads=[...])`, and write `work` with what
`SimulatedClient` offers; `check` is called at the very end, when everything has been healed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from replog.client.writer import Writer
from replog.errors import LogTruncated, OffsetOutOfRange, ReplogError
from replog.testing.simulator.clients import TOPIC, SimulatedClient, text_of
from replog.testing.simulator.ledger import Violation

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["WORKLOADS", "Append", "Burst", "Follow", "Plain", "Read", "Topics", "Workload"]


class Workload:
    """Something that every client of a run does. One object serves the whole run."""

    name: ClassVar[str] = ""

    async def work(self, client: SimulatedClient) -> None:
        """Do it, until `client.world.calm`. An exception that leaves it is a violation, called "crash"."""
        raise NotImplementedError

    def check(self, world: World) -> None:
        """Everything is healed and idle: raise `Violation` if something is not as it should be."""


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
            end_here = world.checks.committed(partition, TOPIC)
            try:
                await client.fetch(TOPIC, partition, offset, wait_ms=client.chance.choice((0, 100)))
            except OffsetOutOfRange as error:
                if offset <= end_here and not world.is_trimmed(partition, offset):
                    raise Violation("readable", f"a read at {offset} of partition {partition}, committed {end_here}: {error}") from error
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
        position, last_epoch, known_epoch = 0, -1, -1
        self._refused.pop(client.number, None)
        while not world.calm:
            poll = world.history.invoke_poll(process, key, position)
            try:
                found = await client.fetch(TOPIC, partition, position, wait_ms=200, last_epoch=last_epoch, known_epoch=known_epoch)
            except LogTruncated as error:  # no election here may lose anything that was committed
                raise Violation("S8", f"a consumer at {position} of partition {partition} is told: {error}") from error
            except OffsetOutOfRange as error:
                poll.info()
                if not world.is_trimmed(partition, position):
                    where = f"partition {partition} at {position}"
                    raise Violation("readable", f"a consumer of {where} is told, though no log starts above: {error}") from error
                position, last_epoch, known_epoch = await self._earliest(client, partition, position), -1, -1
                world.history.assign(process, key, position)
                continue
            except ReplogError as error:
                poll.info()
                world.marks.hit(f"a consumer gets {type(error).__name__}")
                await client.think()
                continue
            poll.ok([(record.offset, text_of(record.value)) for record in found.records], found.high_watermark, found.known_epoch)
            position, last_epoch, known_epoch = found.next_offset, found.last_epoch, found.known_epoch
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


WORKLOADS: dict[str, type[Workload]] = {kind.name: kind for kind in (Append, Read, Follow, Topics, Plain, Burst)}
"""Those that a plan can name."""
