"""What an answer to a wish says of its parts: which of them were refused, and names of topics that rules may hide from whoever asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import evolve

from replog.messages import AdminAnswer

__all__ = ["refusals_in", "without_names"]

_PARTS: Final = ("errors", "partitions")
"""Of a result: what was refused of the moves wished for, and what became of each election. [topic, partition, error, text] each."""
_KNOWN: Final = re.compile(r"; known are ([A-Za-z0-9._, -]*)\Z")
"""Behind "unknown topic": the first names that there are, whoever asks."""


def refusals_in(answer: AdminAnswer) -> tuple[list[int], int | None]:
    """The errors of the parts that were refused, and how many parts are told of; None: only those that were refused."""
    rows = list(_rows(answer))
    total = len(rows) if "partitions" in answer.result else None
    return [row[2] for row in rows if row[2]], total


def without_names(answer: AdminAnswer, may_be_told: Callable[[str], bool]) -> AdminAnswer:
    """The answer, with no names of topics in its texts but those that may be told."""

    def told(text: str) -> str:
        found = _KNOWN.search(text)
        if found is None:
            return text
        names = ", ".join(name for name in found[1].split(", ") if name and may_be_told(name))
        return text[: found.start()] + (f"; known are {names}" if names else "")

    result = answer.result
    if any(_KNOWN.search(row[3]) for row in _rows(answer)):
        for name in _PARTS:
            if isinstance(rows := result.get(name), list):
                result = {**result, name: [[*row[:3], told(row[3])] if _is_row(row) else row for row in rows]}
    return evolve(answer, message=told(answer.message), result=result)


def _rows(answer: AdminAnswer) -> Iterator[Any]:
    for name in _PARTS:
        rows = answer.result.get(name)
        yield from (row for row in rows if _is_row(row)) if isinstance(rows, list | tuple) else ()


def _is_row(row: object) -> bool:
    return isinstance(row, list | tuple) and len(row) == 4 and isinstance(row[2], int) and isinstance(row[3], str)
