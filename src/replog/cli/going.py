"""How many records go with partitions: what a person has to know before saying yes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import frozen

from replog.client.results import PartitionDescription

__all__ = ["Going"]


@frozen
class Going:
    """The records of some partitions, as far as their leaders say."""

    known: int
    """Of those whose leader has answered."""
    unknown: tuple[int, ...]
    """Numbers of the partitions for which nobody has."""

    @classmethod
    def of(cls, partitions: Iterable[PartitionDescription]) -> Going:
        """Of these."""
        known, unknown = 0, []
        for one in partitions:
            if one.high_watermark is None or one.start_offset is None:
                unknown.append(one.partition)
            else:
                known += one.high_watermark - one.start_offset
        return cls(known, tuple(unknown))

    def to_plain(self) -> dict[str, Any]:
        """As plain values: no number where it may be wrong."""
        return {"records": None if self.unknown else self.known, "records_at_least": self.known, "unknown": list(self.unknown)}

    def __str__(self) -> str:
        records = f"{self.known} record{'' if self.known == 1 else 's'}"
        if not self.unknown:
            return records
        count = len(self.unknown)
        return f"at least {records}; nothing is known of {count} partition{'' if count == 1 else 's'}"
