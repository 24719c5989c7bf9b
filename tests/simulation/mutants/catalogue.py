"""All mutants by number, those that wait for a feature, and those that cannot change anything."""

from __future__ import annotations

from tests.simulation.mutants import (
    answers,
    commands,
    controllers,
    followers,
    found,
    groups,
    isr,
    leaderships,
    lives,
    openings,
    paging,
    places,
    producers,
    racks,
    reassignments,
    reshapes,
    retention,
    seeking,
    storage,
    unclean,
    unread,
    watermarks,
)
from tests.simulation.mutants.entry import Equivalent, Mutant, Pending

__all__ = ["EQUIVALENT", "MUTANTS", "PENDING", "by_name"]

_SUBJECTS = (
    followers,
    isr,
    watermarks,
    controllers,
    lives,
    openings,
    commands,
    producers,
    racks,
    storage,
    retention,
    seeking,
    answers,
    found,
    reshapes,
    reassignments,
    leaderships,
    groups,
    unread,
    paging,
    places,
    unclean,
)
_ORDER = {"M": 0, "P": 1, "S": 2, "X": 3}

MUTANTS: tuple[Mutant, ...] = tuple(
    sorted((mutant for subject in _SUBJECTS for mutant in subject.MUTANTS), key=lambda one: (_ORDER[one.number[0]], one.number))
)
PENDING: tuple[Pending, ...] = ()
EQUIVALENT: tuple[Equivalent, ...] = (*controllers.EQUIVALENT, *commands.EQUIVALENT)


def by_name(name: str) -> Mutant:
    """The mutant whose patch has this name, or that has this number. KeyError if there is none."""
    for mutant in (*MUTANTS, *(one.mutant for one in EQUIVALENT)):
        if name in (mutant.name, mutant.number):
            return mutant
    raise KeyError(name)
