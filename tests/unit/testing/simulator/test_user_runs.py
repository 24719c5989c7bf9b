"""What those who simulate a system of their own may do, and what they are told: any values, directed plans, mistakes of theirs."""

from __future__ import annotations

from collections.abc import Generator

import attrs
import pytest

from replog.errors import OffsetOutOfRange, UsageError
from replog.records import Record
from replog.testing.history import check
from replog.testing.history.recorder import History
from replog.testing.simulator import Fault, Plan, Shape, SimulatedClient, Violation, Workload, World, draw, ending, run
from replog.testing.simulator.ending import name_repeated
from replog.testing.simulator.tasks import Signal
from replog.testing.simulator.workloads import WORKLOADS, Follow, Read

CALM = Plan(3, Shape(think_ms=5), (), 1_000)


class Work(Workload):
    name = "mine"

    def __init__(self, values: list[bytes] | None = None) -> None:
        self.values = values or []

    async def work(self, client: SimulatedClient) -> None:
        writer = client.writer()
        for value in self.values:
            await client.append("t", 0, [value], writer=writer)


@pytest.mark.parametrize("values", [[b"\xff\xfe", b"\x80"], [b"same", b"other", b"same", b"same"], [b""]])
def test_values_may_be_any_bytes_and_may_repeat(values: list[bytes]) -> None:
    outcome = run(3, plan=CALM, workloads=[Work(values), WORKLOADS["follow"]()])
    assert outcome.violation is None
    assert outcome.acknowledged == len(values) + 1  # and the probe


def test_a_batch_of_nothing_is_refused_and_not_waited_for() -> None:
    refused: list[str] = []

    class Nothing(Workload):
        name = "nothing"

        async def work(self, client: SimulatedClient) -> None:
            with pytest.raises(UsageError, match=r"values is \[\]") as problem:
                await client.append("t", 0, [], writer=client.writer())
            refused.append(str(problem.value))

    outcome = run(3, plan=CALM, workloads=[Nothing()])
    assert outcome.violation is None
    assert len(refused) == CALM.shape.clients


def repeated() -> History:
    """ "a" is at 0 and 2, and perhaps elsewhere; "b" at 1 only."""
    history = History()
    history.invoke_send("w", "t/0", ["a", "b"]).ok(0)
    history.invoke_send("w", "t/0", ["a"]).ok(2)
    history.invoke_send("v", "t/0", ["a", "c"]).info()
    return history


@pytest.mark.parametrize(
    ("records", "errors"),
    [
        ([(0, "a"), (1, "b"), (2, "a")], 0),
        ([(0, "a"), (1, "b"), (2, "a"), (3, "a"), (4, "c")], 0),
        ([(0, "a"), (1, "b")], 1),  # the second "a" was confirmed
        ([(0, "a"), (1, "b"), (2, "a"), (3, "x")], 1),  # nobody sent that
    ],
)
def test_repeated_values_are_told_apart_by_their_offsets(records: list[tuple[int, str]], errors: int) -> None:
    history = repeated()
    history.invoke_poll("r", "t/0", 0, final=True).ok(records, len(records))
    history.invoke_poll("r", "t/0", len(records), final=True).ok([], len(records))
    name_repeated(history)
    report = check(history)
    assert report.ok == (not errors), report


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"brokers": 3}, (3, None, None)),
        ({"brokers": 1}, (1, 1, 1)),
        ({"replicas": 7}, (7, 7, None)),
        ({"min_isr": 3, "brokers": 3}, (3, 3, 3)),
        ({"replicas": 1}, (None, 1, 1)),
    ],
)
def test_sizes_that_are_not_given_follow_those_that_are(given: dict[str, int], sizes: tuple[int | None, ...]) -> None:
    for seed in range(200):
        shape = draw(seed, **given).shape
        found = (shape.brokers, shape.replicas, shape.min_isr)
        assert all(size in (None, one) for size, one in zip(sizes, found, strict=True)), (seed, found)
        assert 1 <= shape.min_isr <= shape.replicas <= shape.brokers


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"brokers": 3, "replicas": 4}, ("replicas is 4", "brokers is 3")),
        ({"replicas": 2, "min_isr": 3}, ("min_isr is 3", "replicas is 2")),
        ({"brokers": 2, "min_isr": 3}, ("min_isr is 3", "replicas is 2")),
    ],
)
def test_sizes_that_no_cluster_has_are_refused(given: dict[str, int], names: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=f"{names[0]}, {names[1]}"):
        draw(1, **given)


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="'kil'; is 'kill' meant"):
        draw(7, only=("kil",))
    with pytest.raises(UsageError, match="'pauze'; is 'pause' meant"):
        run(3, plan=attrs.evolve(CALM, faults=(Fault(10, "pauze", "leader", 5),)))


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (attrs.evolve(CALM, shape=attrs.evolve(CALM.shape, workloads=("append", "folow"))), "no workload 'folow'; is 'follow' meant"),
        (attrs.evolve(CALM, faults=(Fault(10, "kill", "leadr", 5),)), "no target of kill 'leadr'; is 'leader' meant"),
        (attrs.evolve(CALM, faults=(Fault(10, "kill", "4", 5),)), "no target of kill '4'"),
        (attrs.evolve(CALM, faults=(Fault(10, "outage", "leader", 5),)), "no target of outage 'leader'; is 'all' meant"),
        (attrs.evolve(CALM, shape=attrs.evolve(CALM.shape, replicas=4)), "replicas is 4, brokers is 3"),
        (attrs.evolve(CALM, shape=attrs.evolve(CALM.shape, absent=2)), "absent is 2, replicas is 3, min_isr is 2"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(plan: Plan, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run(3, plan=plan)


def test_a_workload_of_ones_own_needs_no_known_name() -> None:
    plan = attrs.evolve(CALM, shape=attrs.evolve(CALM.shape, workloads=("nobody knows",)))
    assert run(3, plan=plan, workloads=[Work([b"x"])]).violation is None


def test_kinds_of_which_none_can_befall_the_cluster_are_refused() -> None:
    with pytest.raises(UsageError, match="nothing of ring can befall"):
        draw(7, only=("ring",), brokers=3)
    assert not draw(7, only=()).faults


class BadCheck(Work):
    def check(self, world: World) -> None:
        assert world.now_ms < 0, "never"


class NoCoroutine(Work):
    def work(self, client: SimulatedClient) -> None:  # type: ignore[override]
        raise KeyError("at once")


class Bare:
    """As what an event loop takes for "let others run"."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class OtherLoop(Work):
    async def work(self, client: SimulatedClient) -> None:
        await Bare()


class Shared(Work):
    async def work(self, client: SimulatedClient) -> None:
        signal = Signal()
        client.world.spawn("other", self.wait(signal))
        await signal

    async def wait(self, signal: Signal) -> None:
        await signal


class LongEnding(Work):
    async def work(self, client: SimulatedClient) -> None:
        client.world.spawn("failing", self.fail(client))
        try:
            await client.rest(10_000)
        finally:
            await client.rest(1)

    async def fail(self, client: SimulatedClient) -> None:
        await client.rest(50)
        raise Violation("mine", "the reason")


@pytest.mark.parametrize(
    ("work", "violation"),
    [
        (BadCheck(), "crash: check of workload mine: AssertionError"),
        (NoCoroutine(), "crash: workload mine 1: KeyError"),
        (OtherLoop(), "crash: workload mine 1: TypeError"),
        (Shared(), "crash: workload other: AssertionError"),
        (LongEnding(), "mine: the reason"),
    ],
)
def test_mistakes_of_a_workload_are_violations(work: Workload, violation: str) -> None:
    found = run(3, plan=CALM, workloads=[work]).violation
    assert found is not None
    assert str(found).startswith(violation), found


class Refused(SimulatedClient):
    """A cluster that says, to each fetch, that the offset is out of range."""

    async def fetch(self, *args: object, **more: object) -> None:  # type: ignore[override]
        await self.rest(1)
        raise OffsetOutOfRange("gone")


class Refusing(Workload):
    """A built-in workload with a client whose fetches are refused."""

    name = "refused"

    def __init__(self, other: Workload, trimmed: int) -> None:
        self.other, self.trimmed = other, trimmed

    async def work(self, client: SimulatedClient) -> None:
        client.world._starts["t", 0] = self.trimmed
        refused = Refused(client.world, client.number)
        refused.earliest = client.earliest  # type: ignore[method-assign]
        await self.other.work(refused)


@pytest.mark.parametrize(
    ("other", "trimmed", "says"),
    [
        (Follow(), 0, "readable: a consumer of partition 0 at 0 is told, though no log starts above"),
        (Follow(), 9, "readable: a consumer of partition 0 at 0 is told 5 times that it is out of range, the log starts at 0"),
        (Read(), 0, "readable: a read at 0 of partition 0, committed 0"),
        (Read(), 9, None),
    ],
)
def test_only_retention_excuses_an_offset_that_is_out_of_range(other: Workload, trimmed: int, says: str | None) -> None:
    found = run(3, plan=CALM, workloads=[Refusing(other, trimmed)]).violation
    assert (found is None) if says is None else str(found).startswith(says), found


@pytest.mark.parametrize(("trimmed", "earliest"), [(0, 0), (9, 0), (0, 9)])
def test_the_last_reader_does_not_go_round_for_ever(trimmed: int, earliest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Earliest:
        def __init__(self, offset: int) -> None:
            self.offset = offset

    asked = [0, earliest]

    def answer(world: World, client: SimulatedClient, op: object, where: str) -> Earliest:
        if isinstance(op, ending.OffsetOp):
            return Earliest(asked.pop(0))
        raise OffsetOutOfRange("gone")

    monkeypatch.setattr(ending, "_wait", answer)
    world = World(CALM)
    world._starts["t", 0] = trimmed
    with pytest.raises(Violation, match=f"readable: t-0 at 0, the log starts at {earliest}"):
        ending._read_all(world, world.clients["client", 1], "t", 0, 0)


def test_answers_that_bring_nothing_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the high watermark there is something to read."""

    class Nothing:
        offset = next_offset = 0
        records: tuple[object, ...] = ()
        high_watermark = 99

    monkeypatch.setattr(ending, "_wait", lambda *_: Nothing())
    monkeypatch.setattr(ending, "_fetched", lambda *_: Nothing())
    world = World(CALM)
    with pytest.raises(Violation, match="100 answers without records, committed 99"):
        ending._read_all(world, world.clients["client", 1], "t", 0, 0)


@pytest.mark.parametrize(("late", "seen"), [(5, {0: b"a"}), (1_000, {})])
def test_the_last_reader_goes_on_until_it_has_seen_what_was_committed(
    late: int, seen: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader does not know of it yet; if it never does, the reader ends, and what it lacks is told."""
    waits: list[int] = []
    record = Record(b"a")
    record.offset = 0

    class Found:
        offset = 0

        def __init__(self, position: int) -> None:
            some = len(waits) > late and position == 0
            self.records = [record] if some else []
            self.high_watermark = int(len(waits) > late)
            self.next_offset = position + len(self.records)

    def answer(world: World, client: SimulatedClient, op: object, where: str) -> Found:
        if isinstance(op, ending.OffsetOp):
            return Found(0)
        assert isinstance(op, ending.FetchOp)
        waits.append(op.wait_ms())
        return Found(op.offset)

    monkeypatch.setattr(ending, "_wait", answer)
    monkeypatch.setattr(ending, "_fetched", answer)
    world = World(CALM)
    assert ending._read_all(world, world.clients["client", 1], "t", 0, 1) == (0, seen)
    assert waits[0] == 0
    assert set(waits[1:]) <= {0, 100}
    assert len(waits) == (7 if seen else 100)


@pytest.mark.parametrize(("idempotent", "expected"), [(True, True), (False, False)])
def test_the_history_is_judged_by_the_writers_that_were_opened(idempotent: bool, expected: bool) -> None:
    world = World(attrs.evolve(CALM, shape=attrs.evolve(CALM.shape, workloads=("plain",))))
    world.clients["client", 1].writer(idempotent=idempotent)
    assert world.history.settings.idempotent is expected
