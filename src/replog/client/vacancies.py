"""Partitions that nobody leads: who could be elected at the price of records, and how far each of them reaches."""

from __future__ import annotations

from typing import Any

from attrs import frozen

__all__ = ["Candidate", "Vacancy"]


@frozen
class Candidate:
    """A live replica."""

    broker_id: int
    end_offset: int | None
    """Where its copy ends; None if it does not say: it was asked in vain, has no copy, or one that has failed."""

    def __str__(self) -> str:
        reach = "does not say how far it reaches" if self.end_offset is None else f"ends at offset {self.end_offset}"
        return f"broker {self.broker_id}, which {reach}"


@frozen
class Vacancy:
    """One partition without a leader."""

    topic: str
    partition: int
    candidates: tuple[Candidate, ...]
    """In the order of trust: first the replicas as they are placed, then those that only join."""
    away: tuple[int, ...]
    """Replicas that are not live, and may hold more."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        candidates = [{"broker": one.broker_id, "end_offset": one.end_offset} for one in self.candidates]
        return {"topic": self.topic, "partition": self.partition, "candidates": candidates, "away": list(self.away)}

    def __str__(self) -> str:
        able = f"could be led by {'; or by '.join(map(str, self.candidates))}" if self.candidates else "has no live replica"
        brokers = f"broker{'' if len(self.away) == 1 else 's'} {', '.join(map(str, self.away))}"
        return f"{self.topic}-{self.partition} {able}{f'; away, and may hold more: {brokers}' if self.away else ''}"
