"""The small simulator: real brokers, controllers and clients on virtual time, everything else decided by one seed.

A run has two phases. First faults befall the cluster while clients append and read, and after every event the invariants
of `invariants` are checked. Then everything is healed, and the cluster must recover within bounded virtual time:
every partition has a leader and its full ISR, appends are confirmed, copies are equal, and whatever was confirmed can be
read. The same seed gives the same run on every machine.
"""

from __future__ import annotations

from attrs import define

from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.liveness import boot, recover
from replog.testing.simulator.plan import Plan, draw
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

    @property
    def summary(self) -> str:
        """One line."""
        broken = "0 violations" if self.violation is None else f"violated {self.violation.invariant}"
        return (
            f"seed {self.plan.seed}: trace {self.trace_hash}, {self.events} events in {self.time_ms} ms, "
            f"{sum(self.befallen.values())} faults, {self.acknowledged} acknowledged, {broken}"
        )


def run(seed: int, *, plan: Plan | None = None, events_max: int | None = None, tail: int = 40) -> Outcome:
    """Run one seed, or a given plan. `events_max` ends the safety phase early, which makes a failing run shorter."""
    plan = plan or draw(seed)
    world = World(plan, tail=tail)
    violation = None
    try:
        boot(world)
        world.schedule_faults()
        for client in world.clients.values():
            client.work()
        world.run_until(world.now_ms + plan.safety_ms, events_max=events_max)
        recover(world)
    except Violation as found:
        violation = found
    acknowledged = sum(len(one.values) for client in world.clients.values() for one in client.acknowledged)
    return Outcome(
        plan=plan,
        violation=violation,
        trace_hash=world.trace_hash,
        events=world.events,
        befallen=world.befallen,
        acknowledged=acknowledged,
        tail=list(world.tail),
        time_ms=world.now_ms,
        busiest=world.checks.busiest,
    )
