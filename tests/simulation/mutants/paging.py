"""Bugs of what is done page by page, which nothing shows as long as all of it fits one page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.controller.reading import Reader, Script
from replog.testing.simulator.limits import Limits

__all__ = ["MUTANTS"]


def reads_the_second_page_first(patch: Patch) -> None:
    """Of more values than one page holds, those of a later page stand where those of the first belong."""

    in_slices = Reader._in_slices

    def mutant(self: Reader, paths: Sequence[str], make: Any, slice_max: int) -> Script:
        made = yield from in_slices(self, paths, make, slice_max)
        pages = [made[at : at + slice_max] for at in range(0, len(made), slice_max)]
        return [one for page in reversed(pages) for one in page]

    patch.setattr(Reader, "_in_slices", mutant)


MUTANTS = (
    Mutant(
        "X97", "the second page of what a controller reads stands before the first", "our own", reads_the_second_page_first,
        (*SAFETY, "L1", "L2", "L6", "boot", "asked"),
        {"only": ("kill",), "partitions": 3, "workloads": ("append",), "limits": Limits(slice_partitions_max=2)},
    ),
)  # fmt: skip
