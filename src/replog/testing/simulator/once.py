"""Work that is run again until it is done: by attempts that race, hang and come back, and by drivers that die and begin anew."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, ClassVar

from attrs import frozen

from replog.errors import ReplogError, UnknownStage
from replog.marks import WriterMark, framing
from replog.model import PartitionId
from replog.records import encode_values
from replog.testing.simulator.clients import TOPIC, SimulatedClient, text_of
from replog.testing.simulator.forks import Fork
from replog.testing.simulator.known import is_lost
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.workload import Workload

if TYPE_CHECKING:
    from replog.testing.simulator.world import World

__all__ = ["Once", "judge"]

_Work = tuple[str, int]
"""Writer and version."""
_KIND = "once|"


@frozen
class _Attempt:
    """What one attempt at a task has made: other rows than every other one."""

    name: str
    bodies: list[bytes]
    rows: list[str]


@frozen
class _Done:
    """What a client was told."""

    identity: PartitionId
    work: _Work
    base_offset: int
    end_offset: int
    """-1: nobody said."""


class Once(Workload):
    """Writers whose work has versions: appended once, or put aside and published. Each attempt makes rows of its own, so that what is
    read tells which attempt won; there must be one, and all of it."""

    name = "once"
    replays_max: ClassVar[int] = 4
    """So often a driver begins a version anew."""

    def __init__(self) -> None:
        self._possible: dict[tuple[int, _Work], list[list[str]]] = {}
        """(partition, work) -> the rows of each attempt, or of each publication."""
        self._done: list[_Done] = []
        self._attempts = 0
        self._lost: dict[PartitionId, dict[str, list[tuple[int, int]]]] = {}
        """Of each writer (offset, version) of what elections have taken."""
        self._forks: dict[PartitionId, list[Fork]] = {}

    async def work(self, client: SimulatedClient) -> None:
        """One version after another, of two writers; what was left over from earlier ones goes on meanwhile."""
        versions = {f"w{client.number}.{n}": 0 for n in range(2)}
        while not client.world.calm:
            writer = client.chance.choice(sorted(versions))
            versions[writer] += client.chance.choice((1, 1, 3))
            work = writer, versions[writer]
            if client.chance.random() < 0.35:
                await self._task(client, work)
            else:
                await self._job(client, work)
            await client.think()

    # ---------------------------------------------------------------------------------------------------- append once

    async def _task(self, client: SimulatedClient, work: _Work) -> None:
        """One batch: by one attempt, by two at once, or by one that hangs and another that is quicker."""
        chance, partition = client.chance, client.chance.randrange(client.world.plan.shape.partitions)
        if chance.random() < 0.4:
            later_ms = chance.choice((0, 0, 300, 4_000))
            client.world.spawn(f"{self.name} {client.number}", self._append(client, partition, work, later_ms))
        for _ in range(self.replays_max):
            if await self._append(client, partition, work) or client.world.calm:
                break
            await client.think()

    async def _append(self, client: SimulatedClient, partition: int, work: _Work, later_ms: int = 0) -> bool:
        if later_ms:
            await client.rest(later_ms)
            client.world.marks.hit("a leftover attempt appends")
        attempt = self._made(client, partition, work, 1)
        values = [row.encode() for row in attempt.rows]
        body = encode_values(values, now_ms=self._time_of_rows(client), **framing(WriterMark(*work, made_ms=client.world.wall_ms)))
        self._possible.setdefault((partition, work), []).append(attempt.rows)
        try:
            identity, base = await client.append_once(TOPIC, partition, body)
        except ReplogError as error:
            client.world.marks.hit(f"an append once fails with {type(error).__name__}")
            return False
        client.world.marks.hit("work is appended once" if base >= 0 else "an attempt finds later work than its own")
        self._done.append(_Done(identity, work, base, -1))
        return True

    # ------------------------------------------------------------------------------------------------ stage and publish

    async def _job(self, client: SimulatedClient, work: _Work) -> None:
        """A version for one partition or two; its driver may die between them, and a second one may run beside it."""
        chance, shape = client.chance, client.world.plan.shape
        targets = chance.sample(range(shape.partitions), min(shape.partitions, chance.choice((1, 1, 2))))
        if chance.random() < 0.25:
            later_ms = chance.choice((0, 0, 500, 5_000))
            client.world.spawn(f"{self.name} {client.number}", self._drive(client, targets, work, later_ms))
        for _ in range(self.replays_max):
            if await self._drive(client, targets, work) or client.world.calm:
                break
            client.world.marks.hit("a version is replayed")

    async def _drive(self, client: SimulatedClient, targets: list[int], work: _Work, later_ms: int = 0) -> bool:
        """Run the tasks, and publish what they have put aside; whether all of it is done."""
        chance, marks = client.chance, client.world.marks
        if later_ms:
            await client.rest(later_ms)
            marks.hit("a leftover driver begins")
        staged = {target: [await self._stage(client, target, work) for _ in range(chance.choice((1, 1, 2, 3)))] for target in targets}
        for number, target in enumerate(targets):
            if number and chance.random() < 0.3:
                marks.hit("a driver dies between the publications of two partitions")
                await client.think()
                return False
            if not await self._publish(client, target, work, staged[target]):
                return False
        return True

    async def _stage(self, client: SimulatedClient, partition: int, work: _Work) -> _Attempt:
        """One task: the attempt that is to be published. Another one may put its rows aside at the same time, or later."""
        chance, spawn = client.chance, client.world.spawn
        attempt = self._made(client, partition, work, chance.choice((1, 2, 2, 5, 15)))
        if chance.random() < 0.3:
            other = self._made(client, partition, work, len(attempt.bodies))
            spawn(f"{self.name} {client.number}", self._put(client, partition, work, other, chance.choice((0, 0, 1_000))))
        await self._put(client, partition, work, attempt)
        return attempt

    async def _put(self, client: SimulatedClient, partition: int, work: _Work, attempt: _Attempt, later_ms: int = 0) -> None:
        """Put its pieces aside, in any order, some of them twice."""
        chance, (writer, version) = client.chance, work
        if later_ms:
            await client.rest(later_ms)
        numbers = list(range(len(attempt.bodies)))
        if chance.random() < 0.2:
            chance.shuffle(numbers)
            numbers.append(numbers[0])
        for number in numbers:
            body = attempt.bodies[number]
            try:
                if not await client.stage(
                    TOPIC, partition, body, writer=writer, version=version, attempt=attempt.name, number=number
                ):
                    client.world.marks.hit("what is put aside is done already")
                    return
            except ReplogError as error:
                client.world.marks.hit(f"a stage fails with {type(error).__name__}")
                return

    async def _publish(self, client: SimulatedClient, partition: int, work: _Work, attempts: list[_Attempt]) -> bool:
        marks, (writer, version) = client.world.marks, work
        self._possible.setdefault((partition, work), []).append([row for one in attempts for row in one.rows])
        wanted = [(one.name, len(one.bodies)) for one in attempts]
        try:
            identity, base, end = await client.publish(TOPIC, partition, wanted, writer=writer, version=version)
        except UnknownStage:
            marks.hit("what was put aside is gone")
            return False
        except ReplogError as error:
            marks.hit(f"a publication fails with {type(error).__name__}")
            return False
        marks.hit("work is published" if base >= 0 else "a publication finds later work than its own")
        self._done.append(_Done(identity, work, base, end))
        return True

    # ------------------------------------------------------------------------------------------------------------- rows

    def _made(self, client: SimulatedClient, partition: int, work: _Work, pieces: int) -> _Attempt:
        """Rows that no other attempt makes, in so many pieces."""
        self._attempts += 1
        chance, name = client.chance, f"a{self._attempts}"
        bodies, rows = [], []
        for number in range(pieces):
            made = [f"{_KIND}{work[0]}|{work[1]}|{name}|{number}.{n}" for n in range(chance.choice((1, 1, 3)))]
            rows += made
            bodies.append(encode_values([row.encode() for row in made], now_ms=self._time_of_rows(client)))
        key = f"{TOPIC}/{partition}"
        client.world.history.invoke_send(f"once {name}", key, [text_of(row.encode()) for row in rows]).info()
        return _Attempt(name, bodies, rows)

    def _time_of_rows(self, client: SimulatedClient) -> int:
        """Now; or long ago, or in the future: how long versions are remembered has nothing to do with it."""
        wall_ms = client.world.wall_ms
        return (wall_ms, wall_ms, 5, wall_ms, wall_ms + 10**11)[self._attempts % 5]

    # ------------------------------------------------------------------------------------------------------------ judging

    def check(self, world: World) -> None:
        """What was read at the very end holds each piece of work whole or not at all, once, in the order of its versions."""
        self._lost = {one: _work_lost(world.checks.lost(one)) for one in {done.identity: None for done in self._done}}
        self._forks = {identity: world.checks.ledger(identity).forks for identity in self._lost}
        for partition in range(world.plan.shape.partitions):
            key = f"{TOPIC}/{partition}"
            polls = [poll for poll in world.history.polls if poll.key == key and poll.outcome == "ok"]
            found = {offset: str(value) for poll in polls if poll.final for offset, value in poll.records}
            moved = [mark for mark in world.history.marks if mark.key == key]
            start = max([mark.value or 0 for mark in moved if mark.f == "trim"], default=0)
            may_lack_place = any(mark.f == "control" for mark in moved) or world.plan.shape.files
            places = judge(found, start, {work: rows for (number, work), rows in self._possible.items() if number == partition})
            self._check_told(partition, places, start, may_lack_place=may_lack_place)
            bounds = sorted(places.values())
            for poll in polls:
                watermark = poll.high_watermark or 0
                at = bisect_left(bounds, (watermark, 0)) - 1
                if poll.epoch is not None and is_lost(world, partition, watermark, poll.epoch):
                    continue  # of another log
                if at >= 0 and bounds[at][0] < watermark < bounds[at][1]:
                    raise Violation("once", f"{poll.process} of {key} was told HW {watermark}, inside of what is at {bounds[at]}")

    def _check_told(self, partition: int, places: dict[_Work, tuple[int, int]], start: int, *, may_lack_place: bool) -> None:
        """`may_lack_place`: where work is that is done, leaders may not remember, or not be able to read. It is there all the same."""
        for done in self._done:
            gone = start > 0 and done.base_offset < start
            if done.identity.partition != partition or gone or self._is_forgiven(done):
                continue
            told = f"version {done.work[1]} of {done.work[0]} in {TOPIC}-{partition} was said to be at {done.base_offset}"
            base, end = places.get(done.work, (-1, -1))
            if done.base_offset < 0:
                later = any(writer == done.work[0] and version > done.work[1] for writer, version in places)
                if not later and not (may_lack_place and base >= 0):
                    raise Violation("once", f"{told}, it is at {base}, and there is no later one")
            elif base != done.base_offset or done.end_offset not in (-1, end):
                raise Violation("once", f"{told} to {done.end_offset}, it is at {base} to {end}")

    def _is_forgiven(self, done: _Done) -> bool:
        """Whether an election that may lose something has taken what a client was told of, or the later work that it was told of."""
        writer, version = done.work
        if any(fork.is_unseen(done.base_offset) for fork in self._forks.get(done.identity, ())):
            return True
        for offset, lost in self._lost.get(done.identity, {}).get(writer, ()):
            if lost == version if done.base_offset == offset else done.base_offset < 0 and lost >= version:
                return True
        return False


def _work_lost(lost: list[dict[int, bytes | None]]) -> dict[str, list[tuple[int, int]]]:
    """Of each writer (offset, version) of what is lost: gone through once, however much is asked for."""
    found: dict[str, list[tuple[int, int]]] = {}
    for line in lost:
        for offset, value in line.items():
            kind, *row = text_of(value).split("|")
            if kind + "|" == _KIND:
                found.setdefault(row[0], []).append((offset, int(row[1])))
    return found


def judge(found: dict[int, str], start: int, possible: dict[_Work, list[list[str]]]) -> dict[_Work, tuple[int, int]]:
    """Where each piece of work is, of what was read by offset, from `start` on. Raises Violation if one is there twice or in part, or
    before an earlier version of its writer: `possible` are the rows that an attempt at it can have left."""
    rows: dict[_Work, list[tuple[int, str]]] = {}
    for offset, value in sorted(found.items()):
        if value.startswith(_KIND):
            _, writer, version, *_ = value.split("|")
            rows.setdefault((writer, int(version)), []).append((offset, value))
    places: dict[_Work, tuple[int, int]] = {}
    last: dict[str, int] = {}
    for work, read in rows.items():  # in the order of their beginnings
        what = f"version {work[1]} of {work[0]}"
        base, end = read[0][0], read[-1][0] + 1
        values = [value for _, value in read]
        whole = any(values == made or (base <= start and start > 0 and values == made[-len(values) :]) for made in possible.get(work, ()))
        if end - base != len(read) or not whole:
            raise Violation("once", f"{what} is there in other rows than any attempt has made, or not whole: {read}")
        if work[1] < last.get(work[0], -1):
            raise Violation("once", f"{what} is at {base}, after version {last[work[0]]}")
        last[work[0]] = work[1]
        places[work] = base, end
    return places
