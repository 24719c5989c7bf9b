"""Bugs of what is done page by page, which nothing shows as long as all of it fits one page."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.mutants.entry import Mutant, Patch
from tests.simulation.mutants.followers import SAFETY

from replog.controller.reading import Reader, Script
from replog.testing.simulator.limits import Limits

__all__ = ["MUTANTS"]


def reads_the_second_page_first(patch: Patch) -> None:
    """Of more values than one page holds, those of a later page stand where those of the first belong."""

    read_each = Reader.read_each

    def mutant(self: Reader, paths: Sequence[str]) -> Script:
        values = yield from read_each(self, paths)
        pages = [values[at : at + self._slice_max] for at in range(0, len(values), self._slice_max)]
        return [value for page in reversed(pages) for value in page]

    patch.setattr(Reader, "read_each", mutant)


MUTANTS = (
    Mutant(
        "X97", "the second page of what a controller reads stands before the first", "our own", reads_the_second_page_first,
        (*SAFETY, "L1", "L2", "L6", "boot", "asked"),
        {"only": ("kill",), "partitions": 3, "workloads": ("append",), "limits": Limits(slice_partitions_max=2)},
    ),
)  # fmt: skip
