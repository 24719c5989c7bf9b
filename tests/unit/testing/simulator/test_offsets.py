"""Questions for offsets in simulated runs: an answer that cannot be right is a violation; and reads are in the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from replog.client.operations import AT_EARLIEST, AT_LATEST
from replog.messages import ListedOffset
from replog.testing.simulator import Plan, Shape, SimulatedClient, Workload, World, run
from replog.testing.simulator.workloads import Offsets, Read

CALM = Plan(3, Shape(think_ms=5, workloads=("offsets",)), (), 2_000)
Lie = Callable[[int, ListedOffset], ListedOffset]


class Fill(Workload):
    """Eight records, at eight times."""

    name = "fill"

    async def work(self, client: SimulatedClient) -> None:
        writer = client.writer()
        for _ in range(4):
            await client.append("t", 0, client.values(2), writer=writer)
            await client.rest(7)


class Told(SimulatedClient):
    """A client that is told something else."""

    lie: Lie

    async def offset(self, topic: str, partition: int, at: int) -> ListedOffset:
        return self.lie(at, await super().offset(topic, partition, at))


class Lied(Workload):
    """The workload with a client that is lied to, once there is something to read."""

    name = "lied"

    def __init__(self, lie: Lie) -> None:
        self.lie = lie
        self.work_of = Offsets()

    async def work(self, client: SimulatedClient) -> None:
        await client.rest(200)
        told = Told(client.world, client.number)
        client.world.clients["client", 1] = told
        told.lie = self.lie
        await self.work_of.work(told)


def truth(at: int, listed: ListedOffset) -> ListedOffset:
    return listed


def late_start(at: int, listed: ListedOffset) -> ListedOffset:
    return evolve(listed, offset=3) if at == AT_EARLIEST else listed


def behind(at: int, listed: ListedOffset) -> ListedOffset:
    return evolve(listed, offset=7) if at == AT_LATEST else listed


def beyond(at: int, listed: ListedOffset) -> ListedOffset:
    return evolve(listed, offset=9) if at == AT_LATEST else listed


class Wavering:
    """The second answer of an epoch, and of one that is over, is lower than the first."""

    def __init__(self) -> None:
        self.answers = 0

    def __call__(self, at: int, listed: ListedOffset) -> ListedOffset:
        if at == AT_LATEST:
            self.answers += 1
            return evolve(listed, offset=6 if self.answers % 2 else 5, leader_epoch=-1)
        return listed


def one_later(at: int, listed: ListedOffset) -> ListedOffset:
    return evolve(listed, offset=listed.offset + 1) if at >= 0 and 0 <= listed.offset < 7 else listed


def too_early(at: int, listed: ListedOffset) -> ListedOffset:
    return evolve(listed, offset=listed.offset - 1) if at >= 0 and listed.offset > 0 else listed


def start_of_the_batch(at: int, listed: ListedOffset) -> ListedOffset:
    return evolve(listed, offset=listed.offset // 2 * 2) if at >= 0 and listed.offset >= 0 else listed


def none(at: int, listed: ListedOffset) -> ListedOffset:
    return evolve(listed, offset=-1) if at >= 0 else listed


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (truth, None),
        (late_start, "offsets: partition 0 is said to start at 3, no log ever started so late"),
        (behind, "offsets: partition 0 is said to be committed up to 7; 8 was committed before"),
        (beyond, "offsets: partition 0 is said to be committed up to 9; 8 was committed before the question, the leader's log ends at 8"),
        (Wavering(), "offsets: partition 0: 5 is told for -1 in epoch -1, 6 was before"),
        (one_later, "offsets: partition 0: "),
        (too_early, "offsets: partition 0: "),
        (start_of_the_batch, "offsets: partition 0: "),
        (none, "offsets: partition 0: -1 is told for "),
    ],
)
def test_an_offset_that_cannot_be_right_is_a_violation(lie: Lie, says: str | None) -> None:
    outcome = run(3, plan=CALM, workloads=[Fill(), Lied(lie)])
    assert (outcome.violation is None) if says is None else str(outcome.violation).startswith(says), outcome.violation
    if says is None:
        expected = {"the earliest offset is told and read", "the latest offset is told"}
        expected |= {"a time is told its record", "a time has no record yet"}
        assert expected <= set(outcome.marks)


def test_a_leader_of_an_older_epoch_may_be_behind() -> None:
    def deposed(at: int, listed: ListedOffset) -> ListedOffset:
        return evolve(listed, offset=7 if at == AT_LATEST else -1, leader_epoch=-1) if at != AT_EARLIEST else listed

    assert run(3, plan=CALM, workloads=[Fill(), Lied(deposed)]).violation is None


class Reads(Workload):
    """Reads at these positions: of a batch of four, of the next one, and beyond."""

    name = "reads"

    def __init__(self, *positions: int, process: str | None = None) -> None:
        self.positions, self.process = positions, process
        self.found: list[Any] = []
        self.world: World | None = None

    async def work(self, client: SimulatedClient) -> None:
        self.world = client.world
        writer = client.writer()
        for _ in range(2):
            await client.append("t", 0, client.values(4), writer=writer)
        for position in self.positions:
            self.found.append(await client.fetch("t", 0, position, process=self.process))


def test_reads_from_anywhere_are_in_the_history() -> None:
    work = Reads(5, 2, 8, 0)
    assert run(3, plan=CALM, workloads=[work]).violation is None
    assert work.world is not None
    polls = [poll for poll in work.world.history.polls if not poll.final]
    assert [(poll.position, poll.outcome) for poll in polls] == [(5, "ok"), (2, "ok"), (8, "ok"), (0, "ok")]
    assert [[offset for offset, _ in poll.records] for poll in polls] == [[5, 6, 7], [2, 3, 4, 5, 6, 7], [], list(range(8))]
    assert [poll.high_watermark for poll in polls] == [8] * 4
    assert all(poll.epoch is not None and poll.process == "reader 1" for poll in polls)


def test_one_process_reads_on_from_where_it_was() -> None:
    found = run(3, plan=CALM, workloads=[Reads(5, 2, process="mine")]).violation
    assert found is not None
    assert "nonmonotonic-poll" in str(found)


def test_a_read_that_fails_is_in_the_history_too() -> None:
    work = Reads(99)
    found = run(3, plan=CALM, workloads=[work]).violation
    assert str(found).startswith("crash: workload reads 1: OffsetOutOfRange")
    assert work.world is not None
    (poll,) = (poll for poll in work.world.history.polls if not poll.final)
    assert (poll.position, poll.outcome) == (99, "info")


def test_a_wrong_record_that_a_read_brings_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read from the middle of the log alone sees it: no follower reads in this run."""
    fetch = SimulatedClient.fetch

    async def other(self: SimulatedClient, *args: Any, **more: Any) -> Any:
        found = await fetch(self, *args, **more)
        (poll,) = self.world.history.polls[-1:]
        poll.records = [(offset, "another") for offset, _ in poll.records]
        return found

    monkeypatch.setattr(SimulatedClient, "fetch", other)
    found = run(3, plan=CALM, workloads=[Fill(), Read()]).violation
    assert found is not None
    assert found.invariant == "history"
    assert "phantom-read" in str(found)
