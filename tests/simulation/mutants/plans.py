"""Stored plans: for each mutant of the simulator one small plan that catches it, found once and replayed ever after."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest
from attrs import evolve, frozen
from tests.simulation.mutants.catalogue import by_name
from tests.simulation.mutants.engines import breaks, catches
from tests.simulation.mutants.entry import Mutant

from replog.testing.simulator.corpus import Failure, load, to_json
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.minimise import fails, minimise
from replog.testing.simulator.plan import Plan, draw

__all__ = ["Found", "find", "keep", "path_of", "regenerate", "replay", "stored"]

FOLDER = Path(__file__).parent / "plans"
NEIGHBOURS = 1_000
"""So many seeds of a stored plan are tried before another is looked for: a second or two each, and no minimising."""


@frozen
class Found:
    """A plan that catches a mutant, as small as it could be made."""

    plan: Plan
    violation: Violation
    seed: int
    faults_before: int
    runs: int
    """Of the minimiser."""


def path_of(mutant: Mutant) -> Path:
    """Where its plan is kept."""
    return FOLDER / f"{mutant.name}.json"


def stored(mutant: Mutant) -> Failure:
    """The plan that is kept. Raises OSError if there is none, ValueError if it cannot be read."""
    return load(path_of(mutant))


def find(mutant: Mutant, seeds: Iterable[int], *, runs_max: int, tries: int = 3) -> Found | None:
    """The smallest plan of the first seeds that catch the mutant and break nothing without it; None if no seed does."""
    best: Found | None = None
    for seed, _ in islice(catches(mutant, seeds), tries):
        plan = draw(seed, **mutant.directed)
        with pytest.MonkeyPatch.context() as patch:
            mutant.patch(patch)
            small = minimise(plan, fails=fails, runs_max=runs_max)
        if fails(small.plan) is not None:
            continue
        if best is None or len(small.plan.faults) < len(best.plan.faults):
            best = Found(small.plan, small.violation, seed, len(plan.faults), small.runs)
        if len(best.plan.faults) <= 5:
            break
    return best


def replay(mutant: Mutant, plan: Plan, *, variants: int = 30) -> tuple[Plan, Violation] | None:
    """The stored plan, or if the simulator's random streams have moved since it was stored, its first neighbour that catches the mutant.

    A neighbour has the same shape and faults, and the next seed. None: it has to be found anew.
    """
    for seed in range(plan.seed, plan.seed + variants):
        near = evolve(plan, seed=seed)
        violation = breaks(mutant, near)
        if violation is not None and violation.invariant in mutant.invariants and fails(near) is None:
            return near, violation
    return None


def keep(mutant: Mutant, plan: Plan, violation: Violation) -> None:
    """Store the plan of a mutant, over an earlier one."""
    FOLDER.mkdir(exist_ok=True)
    text = to_json(Failure(plan, violation.invariant, f"{mutant.number}: {mutant.title}"))
    path_of(mutant).write_text(text, encoding="utf-8")


def regenerate(name: str, *, cap: int, runs_max: int) -> str:
    """Store one plan that catches the mutant, and say what became of it: the one that is stored with another seed, which is small already;
    or else one that is found and minimised."""
    mutant = by_name(name)
    if path_of(mutant).exists() and (near := replay(mutant, stored(mutant).plan, variants=NEIGHBOURS)) is not None:
        keep(mutant, *near)
        return f"{mutant.number:<6}{mutant.name}: {near[1].invariant} by the stored plan with seed {near[0].seed}"
    found = find(mutant, range(1, cap + 1), runs_max=runs_max)
    if found is None:
        return f"{mutant.number:<6}{mutant.name}: not caught in {cap} schedules"
    keep(mutant, found.plan, found.violation)
    small = f"{found.faults_before} faults, minimised to {len(found.plan.faults)} in {found.runs} runs"
    return f"{mutant.number:<6}{mutant.name}: {found.violation.invariant} by seed {found.seed}, {small}"
