"""Before retention drops the last mention of a writer, the leader says it again: whose work is where is a function of the log, and what
is left of the log must not forget it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import evolve

from replog.marks import framing
from replog.partition.sequences import mark_at
from replog.ports import Log, ProducerState
from replog.records import CONTROL_BIT, Framing, RecordBatch, encode_values

__all__ = ["are_said", "first_said", "mentions"]

_TURN: Final = 200
"""So many writers are said again in one turn: the last batch of each is read for that."""


def mentions(log: Log, outside: Sequence[ProducerState], start: int) -> list[RecordBatch]:
    """A control batch for each of these writers of whom nothing is left from `start` on, as many as one turn takes; others have yet to be
    committed.

    It bears the mark of the writer's last work, with the latest time of its works: what is repeated expires no later. Raises LogCorrupt.
    """
    return [_mention(log, writer) for writer in [one for one in outside if one.recent[-1].base_offset < start][:_TURN]]


def are_said(outside: Sequence[ProducerState], start: int) -> bool:
    """Whether all that is left below `start`, from the first of these writers' last batches on, says again what they had done: no more
    will ever go."""
    lasts = [writer.recent[-1] for writer in outside]
    return all(last.last_sequence == last.base_offset == start - left for left, last in zip(range(len(lasts), 0, -1), lasts, strict=True))


def first_said(outside: Sequence[ProducerState], limit: int) -> int:
    """Where the first of the places is that say last, and committed (below `limit`), what each of these writers has done."""
    return min(max((written.base_offset for written in writer.recent if written.base_offset < limit), default=0) for writer in outside)


def _mention(log: Log, writer: ProducerState) -> RecordBatch:
    last = writer.recent[-1]
    mark = mark_at(log, last.base_offset)
    bears: Framing = {**framing(evolve(mark, group_offset=0, made_ms=last.timestamp_ms)), "attributes": CONTROL_BIT}
    return RecordBatch(encode_values([None], now_ms=last.timestamp_ms, **bears))
