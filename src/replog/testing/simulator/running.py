"""One simulated run: real brokers, controllers and clients on virtual time, everything else decided by one seed.

A run has two phases. First faults befall the cluster while clients do their work, and after every event the invariants are
checked. Then everything is healed, and the cluster must recover within bounded virtual time: every partition has a leader
and its full ISR, appends are confirmed, copies are equal, and whatever was confirmed can be read. In a share of the runs some
brokers stay out meanwhile, and come back when the others have recovered. At last the history of what clients were told is
checked as a whole. The same seed gives the same run on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve

from replog.testing.simulator.absence import recover_in_turns
from replog.testing.simulator.clients import SimulatedClient
from replog.testing.simulator.ending import finish
from replog.testing.simulator.fingerprint import state_hash
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.liveness import boot
from replog.testing.simulator.plan import Plan, draw
from replog.testing.simulator.plan_check import check_plan
from replog.testing.simulator.workload import Workload
from replog.testing.simulator.workloads import WORKLOADS
from replog.testing.simulator.world import World

__all__ = ["Outcome", "run"]


@define
class Outcome:
    """What came of one run. `summary` is the same on every machine."""

    plan: Plan
    violation: Violation | None
    trace_hash: str
    events: int
    befallen: dict[str, int]
    """How many faults of each kind happened."""
    acknowledged: int
    tail: list[str]
    time_ms: int
    busiest: int
    """Most events in one second of virtual time."""
    marks: dict[str, int]
    """What was the case sometimes, and how often."""
    state_hash: str
    """Of everything that is left at the end: logs, store, clients."""

    @property
    def summary(self) -> str:
        """One line."""
        broken = "0 violations" if self.violation is None else f"violated {self.violation.invariant}"
        return (
            f"seed {self.plan.seed}: trace {self.trace_hash}, {self.events} events in {self.time_ms} ms, "
            f"{sum(self.befallen.values())} faults, {self.acknowledged} acknowledged, {broken}"
        )


def run(
    seed: int,
    *,
    plan: Plan | None = None,
    workloads: Sequence[Workload] | None = None,
    events_max: int | None = None,
    tail: int = 40,
) -> Outcome:
    """Run one seed, or a given plan.

    `workloads` are what the clients do, instead of those that the plan names. `events_max` ends the time of faults early, which
    makes a failing run shorter. `tail` is how many last lines of the trace to keep; with 0 no trace is made, nor
    its hash, which saves a tenth of the time and changes nothing else. Raises UsageError, and nothing else, for a
    plan that cannot be run (see `check_plan`); what a workload raises is a violation called "crash".
    """
    plan = plan or draw(seed)
    check_plan(plan if workloads is None else evolve(plan, shape=evolve(plan.shape, workloads=())))
    work = [WORKLOADS[name]() for name in plan.shape.workloads] if workloads is None else workloads
    world = World(plan, tail=tail)
    violation = None
    try:
        boot(world)
        world.nemesis.begin()
        for client in world.clients.values():
            for one in work:
                world.spawn(f"{one.name} {client.number}", _work(one, client))
        world.run_until(world.now_ms + plan.safety_ms, events_max=events_max)
        recover_in_turns(world)
        finish(world)
        for one in work:
            _check(one, world)
    except Violation as found:
        violation = found
    finally:
        left = state_hash(world)
        world.close()
    acknowledged = sum(len(one.values) for client in world.clients.values() for one in client.acknowledged)
    return Outcome(
        plan=plan,
        violation=violation,
        trace_hash=world.trace_hash,
        events=world.events,
        befallen=world.nemesis.befallen,
        acknowledged=acknowledged,
        tail=list(world.tail),
        time_ms=world.now_ms,
        busiest=world.checks.busiest,
        marks=world.marks.hits,
        state_hash=left,
    )


async def _work(one: Workload, client: SimulatedClient) -> None:
    """As a task: also what is raised before it is a coroutine leaves it."""
    await one.work(client)


def _check(one: Workload, world: World) -> None:
    try:
        one.check(world)
    except Violation:
        raise
    except Exception as error:  # a plain assert, or a mistake of the check
        raise Violation("crash", f"check of workload {one.name}: {error!r}") from error
