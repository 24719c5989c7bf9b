"""How soon random search catches a mutant: the median over several first seeds, each with a cap."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import redirect_stdout
from statistics import median

from attrs import frozen
from tests.simulation.mutants.catalogue import by_name
from tests.simulation.mutants.engines import fails_test, scenario_differs, search
from tests.simulation.mutants.entry import Mutant

__all__ = ["Measured", "measure", "other_evidence", "row"]

STRIDE = 10_000
"""Between the first seeds of two searches: they share no seed."""


@frozen
class Measured:
    """What the searches came to."""

    mutant: Mutant
    schedules: tuple[int | None, ...]
    """How many each took; None: not caught within the cap."""
    invariants: tuple[tuple[str, int], ...]
    """Which spoke, and how often."""
    cap: int
    """Schedules per search at most."""

    @property
    def median(self) -> float | None:
        """Of all searches, those that found nothing counting as the worst; None if the median itself is such a one."""
        middle = median([float("inf") if one is None else one for one in self.schedules]) if self.schedules else float("inf")
        return None if middle == float("inf") else middle


def measure(mutant: Mutant, *, starts: int, cap: int) -> Measured:
    """Search from `starts` first seeds, at most `cap` schedules each."""
    taken: list[int | None] = []
    spoke: Counter[str] = Counter()
    for start in range(starts):
        first = start * STRIDE + 1
        found = search(mutant, range(first, first + cap))
        taken.append(None if found is None else found[0] - first + 1)
        if found is not None:
            spoke[found[1].invariant] += 1
    return Measured(mutant, tuple(taken), tuple(spoke.most_common()), cap)


def other_evidence(mutant: Mutant) -> list[str]:
    """The scenarios and tests that see the mutant."""
    seen = [number for number in mutant.scenarios if scenario_differs(mutant, number)]
    return [*seen, *(node.rsplit("/", 1)[1] for node in mutant.tests if fails_test(mutant, node))]


def row(name: str, *, starts: int, cap: int) -> tuple[Measured, list[str]]:
    """What one mutant comes to. Tests run inside: what they print is of no interest."""
    mutant = by_name(name)
    measured = measure(mutant, starts=starts if mutant.invariants else 0, cap=cap)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        evidence = other_evidence(mutant)
    return measured, evidence
