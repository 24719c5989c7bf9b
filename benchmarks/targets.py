"""What a figure should reach. A target stands beside the benchmark that measures the figure, and nowhere else."""

from __future__ import annotations

from typing import Any

import attrs

__all__ = ["Target", "at_least", "at_most"]


@attrs.frozen(slots=True)
class Target:
    """A bound on one figure of a benchmark, which it may just reach."""

    figure: str
    """The name under which the benchmark reports it."""
    bound: float
    is_upper: bool

    def reached(self, value: float) -> bool:
        """Whether the figure is good enough. One that is no number is not."""
        return value <= self.bound if self.is_upper else value >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.is_upper else '>='} {self.bound:g}"

    def to_json(self) -> dict[str, Any]:
        """What is left in the benchmark's report."""
        return attrs.asdict(self)


def at_least(figure: str, bound: float) -> Target:
    """More is better."""
    return Target(figure, bound, False)


def at_most(figure: str, bound: float) -> Target:
    """Less is better."""
    return Target(figure, bound, True)
