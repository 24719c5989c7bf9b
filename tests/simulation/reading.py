"""A workload of the tests: `Client.read()` itself, in virtual time.

The public client blocks, and a coroutine cannot wait inside it. But a read does nothing except ask: so it is played again from
its beginning with the answers that there are, up to the first question without an answer, which is then asked in virtual time.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from typing import Any, ClassVar

from replog.client.client import Client
from replog.client.offsets import OffsetOp
from replog.client.operations import AT_EARLIEST, Operation
from replog.errors import OffsetOutOfRange, ReplogError
from replog.testing.simulator.clients import TOPIC, SimulatedClient
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.workload import Workload
from replog.testing.simulator.workloads import WORKLOADS

__all__ = ["Past", "ReadToEnd", "judge"]


class ReadToEnd(Workload):
    """Reads a partition from its start to its end, slowly, through changes of leaders: all that lies between, and nothing less."""

    name = "read to the end"
    timeout_s: ClassVar[float] = 10
    """Of each wait for a broker."""

    async def work(self, client: SimulatedClient) -> None:
        """One read after another."""
        world = client.world
        while not world.calm:
            partition = client.chance.randrange(world.plan.shape.partitions)
            try:
                told, found = await self._read(client, partition)
            except OffsetOutOfRange:
                world.marks.hit("retention is faster than a read to the end")
            except ReplogError as error:
                world.marks.hit(f"a read to the end fails with {type(error).__name__}")
            else:
                world.marks.hit("a read to the end")
                judge(partition, *told, found)
            await client.rest(client.chance.randint(1, 4 * world.plan.shape.think_ms))

    async def _read(self, client: SimulatedClient, partition: int) -> tuple[tuple[int, int], list[int]]:
        """((start, end) as the leader told them, the offsets of what was read)."""
        answers: list[Operation] = []
        times: list[int] = []
        while True:
            face = _Replayed(client, answers, times)
            try:
                found = [record.offset for record in face.read(TOPIC, partitions=[partition], timeout_s=self.timeout_s)]
            except _Unanswered as question:
                if client.chance.random() < 0.5:
                    await client.rest(client.chance.randint(1, 500))  # whoever reads takes his time
                for op in question.ops:
                    client.submit(op)
                for op in question.ops:
                    with suppress(ReplogError):  # the read will hear of it
                        await client._done(op)
                answers += question.ops
                continue
            told = {op.at: op.result.offset for op in answers if isinstance(op, OffsetOp)}
            start = told.pop(AT_EARLIEST)
            (end,) = told.values()
            return (start, end), found


def judge(partition: int, start: int, end: int, found: list[int]) -> None:
    """Raise `Violation` if a read that was told where a log starts and ends did not bring all that lies between."""
    if found != list(range(start, end)):
        brought = f"{len(found)} records up to {found[-1]}" if found else "nothing"
        raise Violation("read", f"partition {partition} from {start} to {end}: a read to the end brings {brought}")


class _Unanswered(Exception):
    """A read asks something that was not asked before."""

    def __init__(self, ops: list[Operation]) -> None:
        super().__init__("a question without an answer")
        self.ops = ops


class _Replayed(Client):
    """A client whose questions have been answered before, up to the first that has not."""

    def __init__(self, client: SimulatedClient, answers: list[Operation], times: list[int]) -> None:
        super().__init__(Past(client, times))
        self._answers = answers
        self._asked = 0

    def _do_all(self, ops: Iterable[Operation]) -> None:
        for op in (asked := list(ops)):
            if self._asked == len(self._answers):
                raise _Unanswered(asked)
            vars(op).update(vars(self._answers[self._asked]))
            self._asked += 1


class Past:
    """What a client needs of its driver: the time of each look at the clock as it was when it was played for the first time."""

    lock = nullcontext()
    closed = False

    def __init__(self, client: SimulatedClient, times: list[int]) -> None:
        self.core = client.core
        self._world = client.world
        self._times = times
        self._looks = 0

    def now_ms(self) -> int:
        self._looks += 1
        if self._looks > len(self._times):
            self._times.append(self._world.now_ms)
        return self._times[self._looks - 1]

    def close(self) -> Any:
        """Nothing is open."""


WORKLOADS[ReadToEnd.name] = ReadToEnd
