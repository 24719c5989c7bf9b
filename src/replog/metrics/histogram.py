"""Histograms with fixed edges: an observation is a search among a dozen numbers and an increment, and nothing is kept of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from attrs import frozen

__all__ = ["SECONDS", "Histogram", "Observed"]

SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper edges of all times, from what an acknowledgement in one process takes to the longest that a fetch may wait."""


@frozen
class Observed:
    """A histogram at one moment."""

    edges: tuple[float, ...]
    """Upper and inclusive, ascending; above the last one there is one more bucket."""
    counts: tuple[int, ...]
    """Of each bucket by itself; one more than edges."""
    sum: float

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(upper edge, how many were not above it), the last edge infinite: what Prometheus calls buckets."""
        total = 0
        for edge, count in zip((*self.edges, float("inf")), self.counts, strict=True):
            total += count
            yield edge, total

    def __add__(self, other: Observed) -> Observed:
        """Both together; they have the same edges."""
        return Observed(self.edges, tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)), self.sum + other.sum)


class Histogram:
    """Counts observations; one thread observes, any thread may ask.

    >>> times = Histogram((0.1, 1.0))
    >>> for seconds in (0.05, 0.1, 3.0):
    ...     times.observe(seconds)
    >>> times.observed().counts, times.longest
    ((2, 0, 1), 3.0)
    """

    __slots__ = ("counts", "edges", "longest", "sum")

    def __init__(self, edges: tuple[float, ...] = SECONDS) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0
        self.longest = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value`, in the unit of the edges, so many times."""
        self.counts[bisect_left(self.edges, value)] += times
        self.sum += value * times
        if value > self.longest:
            self.longest = value

    def observed(self) -> Observed:
        """What was counted until now."""
        return Observed(self.edges, tuple(self.counts), self.sum)
