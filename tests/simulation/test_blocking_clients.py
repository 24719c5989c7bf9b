"""The real `Client`, `Producer` and `Consumer` in simulated runs: their waits are virtual time, and their threads change nothing."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from attrs import evolve

from replog.errors import Unavailable, UsageError
from replog.testing.simulator import SimulatedClient, Violation, Workload, draw, run
from replog.testing.simulator.plan import Plan, Shape
from replog.testing.simulator.strands import Strand, await_here
from replog.testing.simulator.tasks import Signal, Task

pytestmark = pytest.mark.simulation

QUIET: dict[str, Any] = {"only": (), "retention_bytes": 0, "retention_ms": 0, "drop": 0.0, "unsure": 0.0, "slow": 0.0, "absent": 0}


def strands() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("strand")]


def test_a_strand_goes_on_when_what_it_waits_for_happens() -> None:
    steps: list[str] = []
    first, second = Signal(), Signal()

    def blocks() -> None:
        for name, signal in (("first", first), ("second", second)):
            steps.append(f"waits for the {name}")
            await_here(signal)
        steps.append("ends")

    ready: list[Task] = []
    task = Task("t", Strand("strand", blocks).run(), ready.append)
    task.run()
    assert steps == ["waits for the first"]
    first.set()
    ready.pop().run()
    assert steps[1:] == ["waits for the second"]
    second.set()
    ready.pop().run()
    assert (steps[2:], task.done, task.error, strands()) == (["ends"], True, None, [])


def test_what_a_strand_raises_its_task_raises() -> None:
    def fails() -> None:
        raise Unavailable("no")

    task = Task("t", Strand("strand", fails).run(), lambda _: None)
    task.run()
    assert isinstance(task.error, Unavailable)
    assert strands() == []


def test_a_strand_that_waits_is_given_up_with_its_run() -> None:
    """Its endings run, and may not wait for anything either."""
    ended: list[str] = []

    def blocks() -> None:
        try:
            await_here(Signal())
        finally:
            ended.append("once")
            try:
                await_here(Signal())
            finally:
                ended.append("twice")

    task = Task("t", Strand("strand", blocks).run(), lambda _: None)
    task.run()
    task.close()
    assert (ended, strands()) == (["once", "twice"], [])


def test_only_a_strand_can_block() -> None:
    with pytest.raises(RuntimeError, match="outside of a strand"):
        await_here(Signal())


class Blocking(Workload):
    """One thread that uses the public client as anybody does."""

    name = "blocking"

    def __init__(self) -> None:
        self.told: list[object] = []

    async def work(self, client: SimulatedClient) -> None:
        if client.number == 1:
            await Strand("strand", partial(self.block, client)).run()

    def block(self, client: SimulatedClient) -> None:
        world, cluster = client.world, client.blocking
        begun_ms = world.now_ms
        world.history.invoke_send("mine", "t/0", ["one", "two"]).info()
        with cluster.producer(linger_ms=400, acks="all") as producer:
            one = producer.send("t", b"one", partition=0)
            self.told.append(one.done())
            cluster._driver.wait(one.done, 10)
            self.told.append(400 <= world.now_ms - begun_ms < 1_000)  # nobody asked for it: it lingered
            two = producer.send("t", b"two", partition=0)
            self.told.append((one.result().offset, two.result().offset, world.now_ms - begun_ms < 1_000))
        with cluster.consumer("t", partitions=[0], start="earliest") as consumer:
            self.told.append([record.value for record in consumer.poll(timeout_s=5)])
            begun_ms = world.now_ms
            self.told.append((consumer.poll(timeout_s=3), world.now_ms - begun_ms))
        cluster.close()
        with pytest.raises(UsageError, match="closed"):
            cluster.topics()


def test_waits_are_virtual_time() -> None:
    work = Blocking()
    outcome = run(4, plan=draw(4, **QUIET, clients=2, partitions=1), workloads=[work])
    assert outcome.violation is None
    assert work.told == [False, True, (0, 1, True), [b"one", b"two"], ([], 3_000)]
    assert strands() == []


class Fails(Blocking):
    """Finds something wrong."""

    def block(self, client: SimulatedClient) -> None:
        client.blocking.topics()
        raise Violation("mine", "wrong")


def test_a_violation_in_a_strand_ends_the_run() -> None:
    outcome = run(4, plan=draw(4, **QUIET), workloads=[Fails()])
    assert outcome.violation is not None
    assert outcome.violation.invariant == "mine"
    assert strands() == []


def plan_of(seed: int) -> Plan:
    """With faults, but short."""
    kept: dict[str, Any] = {"linger_ms": 200, "buffer_bytes": 4_096, "retention_bytes": 0, "retention_ms": 0, "brokers": 3, "replicas": 3}
    plan = draw(seed, workloads=("produce", "consume"), clients=2, partitions=2, files=False, **kept)
    return evolve(plan, safety_ms=10_000)


def test_batches_are_open_over_time_and_what_goes_on_there_happens() -> None:
    seen: dict[str, int] = {}
    for seed in (1, 2, 3):
        outcome = run(seed, plan=plan_of(seed))
        assert outcome.violation is None
        seen.update(outcome.marks)
    assert {
        "a record joins an open batch", "a producer waits for room", "a flush finds open batches", "a producer is closed with open batches",
        "a consumer catches up once all is healed",
    } <= set(seen)  # fmt: skip


def test_the_same_seed_is_the_same_run_whatever_threads_do() -> None:
    first, second = run(2, plan=plan_of(2)), run(2, plan=plan_of(2))
    assert (first.trace_hash, first.state_hash, first.marks) == (second.trace_hash, second.state_hash, second.marks)


def test_they_are_drawn_in_a_share_of_the_runs_and_nothing_else_is_moved() -> None:
    plans = [draw(seed) for seed in range(1, 101)]
    assert 10 < sum("produce" in plan.shape.workloads for plan in plans) < 50
    assert 10 < sum("consume" in plan.shape.workloads for plan in plans) < 50
    assert len({plan.shape.linger_ms for plan in plans}) > 3
    assert (Shape().linger_ms, Shape().batch_bytes, Shape().buffer_bytes) == (0, 0, 0)
    given = draw(7, workloads=("append",), linger_ms=5)
    assert (given.shape.workloads, given.shape.linger_ms) == (("append",), 5)
    assert given.faults == draw(7).faults


@pytest.mark.parametrize(("field", "value"), [("linger_ms", -1), ("linger_ms", 60_001), ("batch_bytes", 63), ("buffer_bytes", 1_023)])
def test_a_plan_that_no_producer_takes_is_refused(field: str, value: int) -> None:
    with pytest.raises(UsageError, match=field):
        run(1, plan=draw(1, **{field: value}))
