"""The small simulator: real brokers, controllers and clients on virtual time, everything else decided by one seed.

    python -m replog.testing.shuffle SEED [--runs N] [--events N] [-v]

A run has two phases. First faults befall the cluster while clients append and read, and after every event the invariants
of `shuffle_invariants` are checked. Then everything is healed, and the cluster must recover within bounded virtual time:
every partition has a leader and its full ISR, appends are confirmed, copies are equal, and whatever was confirmed can be
read. The same seed gives the same run on every machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from attrs import define

from replog.testing.shuffle_ledger import Violation
from replog.testing.shuffle_liveness import boot, recover
from replog.testing.shuffle_plan import Plan, draw
from replog.testing.shuffle_world import World

__all__ = ["Outcome", "main", "run"]


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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if any run violated an invariant."""
    parser = argparse.ArgumentParser(prog="python -m replog.testing.shuffle", description="Seeded runs of a whole cluster in virtual time.")
    parser.add_argument("seed", type=int, help="the seed of the (first) run")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="run N seeds, from SEED on")
    parser.add_argument("--events", type=int, default=None, metavar="N", help="end the time of faults after N events")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the plan and the whole trace of each run")
    given = parser.parse_args(arguments)
    broken = 0
    for seed in range(given.seed, given.seed + given.runs):
        outcome = run(seed, events_max=given.events, tail=1_000_000 if given.verbose else 40)
        if outcome.violation is not None or given.verbose:
            print(outcome.plan)
            print("the end of the trace:" if not given.verbose else "the trace:")
            print("\n".join(f"  {line}" for line in outcome.tail))
        if outcome.violation is not None:
            broken += 1
            print(f"violated {outcome.violation}")
            print(f"replay: python -m replog.testing.shuffle {seed}")
        print(outcome.summary)
    if given.runs > 1:
        print(f"{given.runs} runs, {broken} violated an invariant")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
