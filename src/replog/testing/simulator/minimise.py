"""Make a failing plan small: as few faults, as short and round, on as simple a cluster as still break the same invariant.

First delta debugging over the faults (Zeller and Hildebrandt's ddmin: drop halves, quarters, single ones), after the time
of faults was cut where the failure shows. Then the surroundings are simplified one field at a time, which often makes
further faults unnecessary, so all of it is repeated until nothing helps any more. If many faults remain then, most of them
only keep the random streams in step with a rare coincidence; so some other seeds are tried with fewer faults. The same plan
and the same `fails` give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import attrs
from attrs import evolve, frozen

from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.limits import USUAL, Limits
from replog.testing.simulator.plan import Fault, Plan, Shape, applies
from replog.testing.simulator.plan_check import check_plan
from replog.testing.simulator.running import run

__all__ = ["RUNS_MAX", "Fails", "Minimised", "fails", "minimise"]

RUNS_MAX: Final = 600
"""Enough for every seeded bug of the tests: about two minutes of runs."""

Fails = Callable[[Plan], Violation | None]
"""Runs a plan and tells what it breaks."""

FEW: Final = 5
"""A plan with at most so many faults keeps its seed."""
_OTHER_SEEDS: Final = 12
_ROUND_MS: Final = (1_000, 100, 10)
_SIMPLER: Final[dict[str, tuple[Any, ...]]] = {
    "clients": (1, 2),
    "partitions": (1, 2),
    "brokers": (1, 2, 3, 4),
    "replicas": (1, 2, 3),
    "min_isr": (1, 2),
    "drop": (0.0,),
    "repeat": (0.0,),
    "slow": (0.0,),
    "unsure": (0.0,),
    "flush": ("os",),
}
"""Values to try for fields of the shape, simplest first. The default of a field is always tried."""


@frozen
class Minimised:
    """The smallest plan that was found, what it violates, and how many runs that took."""

    plan: Plan
    violation: Violation
    runs: int


def fails(plan: Plan) -> Violation | None:
    """What a run of the plan violates. An exception that escapes counts too, under the name of its class.

    Raises UsageError for a plan that cannot be run.
    """
    check_plan(plan)
    try:
        return run(plan.seed, plan=plan, tail=0).violation
    except Exception as problem:
        return Violation(f"raised-{type(problem).__name__}", str(problem))


def minimise(plan: Plan, *, fails: Fails = fails, runs_max: int = RUNS_MAX, any_invariant: bool = False) -> Minimised:
    """The smallest plan found in at most `runs_max` runs that violates the same invariant, or any if that is allowed.

    Raises ValueError if the plan violates nothing.
    """
    return _Search(fails, runs_max, any_invariant).minimise(plan)


class _Search:
    """The best plan so far, and the runs that were spent."""

    def __init__(self, fails: Fails, runs_max: int, any_invariant: bool) -> None:
        self.fails = fails
        self.runs_max = runs_max
        self.any_invariant = any_invariant
        self.runs = 0
        self.tried: set[Plan] = set()

    def minimise(self, plan: Plan) -> Minimised:
        self.runs = 1
        violation = self.fails(plan)
        if violation is None:
            raise ValueError(f"the plan of seed {plan.seed} violates nothing")
        self.plan, self.violation = plan, violation
        self._reduce()
        while len(self.plan.faults) > FEW and self._change_seed():
            self._reduce()
        before = None
        while before != self.plan and self.runs < self.runs_max:
            before = self.plan
            self._simplify_faults()
            self._reduce()
        self._round_end()
        return Minimised(self.plan, self.violation, self.runs)

    def _reduce(self) -> None:
        """Fewer faults and simpler surroundings, in turn, until nothing helps."""
        before = None
        while before != self.plan and self.runs < self.runs_max:
            before = self.plan
            self._end_early()
            self._drop_faults()
            self._simplify_shape()

    def attempt(self, plan: Plan) -> bool:
        """Take over a plan if it still fails."""
        if plan == self.plan or plan in self.tried or self.runs >= self.runs_max:
            return False
        self.tried.add(plan)
        self.runs += 1
        violation = self.fails(plan)
        if violation is None or not (self.any_invariant or violation.invariant == self.violation.invariant):
            return False
        self.plan, self.violation = plan, violation
        return True

    # ------------------------------------------------------------------------------------------------------ the faults

    def _end_early(self) -> None:
        """Cut the time of faults by bisection: until it ends, the shorter run is the same run."""
        low, high = 0, self.plan.safety_ms
        while high - low > 50:
            middle = (low + high) // 2
            faults = tuple(fault for fault in self.plan.faults if fault.at_ms < middle)
            if self.attempt(evolve(self.plan, safety_ms=middle, faults=faults)):
                high = middle
            else:
                low = middle

    def _drop_faults(self) -> None:
        """Delta debugging: keep a part alone, or drop it, for parts that get smaller; single ones until none can go."""
        if self.attempt(evolve(self.plan, faults=())):
            return
        parts = 2
        while len(self.plan.faults) > 1 and self.runs < self.runs_max:
            faults = self.plan.faults
            parts = min(parts, len(faults))
            if self._keep_one_part(faults, parts):
                parts = 2
            elif self._drop_one_part(faults, parts):
                parts = max(parts - 1, 2)
            elif parts == len(faults):
                return
            else:
                parts *= 2

    def _keep_one_part(self, faults: Sequence[Fault], parts: int) -> bool:
        return any(self.attempt(evolve(self.plan, faults=tuple(faults[a:b]))) for a, b in _cuts(len(faults), parts))

    def _drop_one_part(self, faults: Sequence[Fault], parts: int) -> bool:
        return any(self.attempt(evolve(self.plan, faults=(*faults[:a], *faults[b:]))) for a, b in _cuts(len(faults), parts))

    def _change_seed(self) -> bool:
        """Drop a part of the faults under another seed: the largest part that can go."""
        faults, parts = self.plan.faults, 2
        while self.runs < self.runs_max:
            for a, b in _cuts(len(faults), parts):
                for seed in range(self.plan.seed + 1, self.plan.seed + 1 + _OTHER_SEEDS):
                    if self.attempt(evolve(self.plan, seed=seed, faults=(*faults[:a], *faults[b:]))):
                        return True
            if parts == len(faults):
                return False
            parts = min(2 * parts, len(faults))
        return False

    def _simplify_faults(self) -> None:
        """Shorten each fault, round its time, and give its other fields their defaults."""
        for number in range(len(self.plan.faults)):
            for change in _simpler_faults():
                faults = self.plan.faults
                changed = change(faults[number])
                self._attempt_faults((*faults[:number], changed, *faults[number + 1 :]))

    def _round_end(self) -> None:
        any(self.attempt(evolve(self.plan, safety_ms=-(-self.plan.safety_ms // size) * size)) for size in _ROUND_MS)

    def _attempt_faults(self, faults: tuple[Fault, ...]) -> bool:
        in_order = all(one.at_ms <= other.at_ms for one, other in pairwise(faults)) and faults[-1].at_ms <= self.plan.safety_ms
        return in_order and self.attempt(evolve(self.plan, faults=faults))

    # ------------------------------------------------------------------------------------------------- the surroundings

    def _simplify_shape(self) -> None:
        """One field at a time: its simplest value that still fails."""
        for field in attrs.fields(Shape):
            for value in _simpler_values(field, getattr(self.plan.shape, field.name)):
                plan = evolve(self.plan, shape=evolve(self.plan.shape, **{field.name: value}))
                if _is_legal(plan) and self.attempt(plan):
                    break


def _cuts(length: int, parts: int) -> Iterator[tuple[int, int]]:
    """Where `parts` parts of about equal length begin and end."""
    for part in range(parts):
        yield length * part // parts, length * (part + 1) // parts


def _simpler_values(field: attrs.Attribute[Any], present: Any) -> Iterator[Any]:
    """Values of a field that are simpler than the present one: those of the table, else the default; of several words, one less."""
    for value in _SIMPLER.get(field.name, ()):
        if value == present:
            return
        if isinstance(present, str) or value < present:
            yield value
    if isinstance(present, Limits):
        yield USUAL
        yield from (evolve(present, **{one.name: 0}) for one in attrs.fields(Limits))
    if isinstance(present, tuple):
        yield from (present[:number] + present[number + 1 :] for number in range(len(present)) if len(present) > 1)
    elif field.name not in _SIMPLER and field.default is not attrs.NOTHING and field.default != present:
        yield field.default


def _simpler_faults() -> Iterator[Callable[[Fault], Fault]]:
    """What to try with one fault, in order; each is given the fault as the one before has left it."""
    for length in (1, 100, 1_000):
        yield lambda fault, length=length: evolve(fault, length_ms=min(fault.length_ms, length))  # type: ignore[misc]
    for size in _ROUND_MS:
        yield lambda fault, size=size: evolve(fault, length_ms=_rounded(fault.length_ms, size) or fault.length_ms)  # type: ignore[misc]
    for size in _ROUND_MS:
        yield lambda fault, size=size: evolve(fault, at_ms=_rounded(fault.at_ms, size))  # type: ignore[misc]
    for field in attrs.fields(Fault):
        if field.default is not attrs.NOTHING:
            yield lambda fault, field=field: evolve(fault, **{field.name: field.default})  # type: ignore[misc]


def _rounded(time_ms: int, size_ms: int) -> int:
    return (time_ms + size_ms // 2) // size_ms * size_ms


def _is_legal(plan: Plan) -> bool:
    """Whether the cluster can be built and promises to survive such faults, and the faults name brokers that it has."""
    shape = plan.shape
    named = [int(fault.target) for fault in plan.faults if fault.target.isdecimal()] + [fault.other for fault in plan.faults]
    if not shape.min_isr <= shape.replicas <= shape.brokers >= max(named, default=0) or shape.absent > shape.replicas - shape.min_isr:
        return False
    return all(applies(fault.kind, shape) for fault in plan.faults)
