"""Intact batches that no reader can decode: what their writer sealed is not what it claims. No damage: no repair and no copy helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

from replog.cli.copies import Report, batches
from replog.records import BadBatch, RecordBatch, decode_records

__all__ = ["Undecodable", "plain_undecodable", "undecodable", "undecodable_in"]


@frozen
class Undecodable:
    """One batch."""

    file: str
    position: int
    base_offset: int
    end_offset: int
    """Where a reader goes on that leaves it out."""
    reason: str

    def __str__(self) -> str:
        return f"{self.file} at position {self.position}: the batch of offsets {self.base_offset} to {self.end_offset - 1}: {self.reason}"


def undecodable(file: str, position: int, batch: RecordBatch) -> Undecodable | None:
    """What a reader would say of an intact batch; None if it takes it."""
    if batch.is_control:
        return None
    try:
        decode_records(batch)
    except BadBatch as bad:
        return Undecodable(file, position, batch.base_offset, batch.end_offset, str(bad))
    return None


def undecodable_in(report: Report, read: Callable[[int], None] | None = None) -> Iterator[Undecodable]:
    """Those in the valid part of a log that was verified; `read` is told of bytes when they were read. What has changed since is left out:
    its broker trims and cuts."""
    for part in report.parts:
        try:
            for position, batch in batches(part, lambda change: None):
                found = undecodable(part.file, position, batch)
                if found is not None:
                    yield found
                if read is not None:
                    read(batch.length)
        except OSError:
            continue


def plain_undecodable(one: Undecodable) -> dict[str, Any]:
    """As JSON has it."""
    return {
        "file": one.file,
        "position": one.position,
        "base_offset": one.base_offset,
        "last_offset": one.end_offset - 1,
        "reason": one.reason,
    }
