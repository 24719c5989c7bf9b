"""How large a space of the real code is: how many of everything, and how often anything may go wrong."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from replog.errors import UsageError
from replog.testing.exploration.limits import whole

__all__ = ["CRASHES", "REPLICAS_MAX", "Budgets"]

CRASHES: Final = ("kill", "restart", "expire")
"""The kinds of crashes that a plan can have."""
REPLICAS_MAX: Final = 9
"""A search among more of them would not come far."""


@frozen
class Budgets:
    """How often things may happen in one run, and how large the cluster is. UsageError for what cannot be, or could never happen."""

    replicas: int = field(default=3, validator=whole(1, REPLICAS_MAX))
    min_isr: int = field(default=2, validator=whole(1))
    """At most `replicas`."""
    records: int = field(default=2, validator=whole(0))
    """Appended in all, each as a batch of its own."""
    epochs: int = field(default=3, validator=whole(1))
    """Leader epochs; what would begin another one does not happen."""
    crashes: int = field(default=2, validator=whole(0))
    """Processes that are killed, or back before their session has ended, and sessions that end alone, together."""
    plan: tuple[tuple[str, int], ...] = ()
    """What the crashes are (of CRASHES) and whom they hit, in this order, instead of `crashes` of any kind."""
    powers: int = field(default=0, validator=whole(0))
    """Power failures: what was not flushed is gone, and nothing ever is flushed here. More than min_isr - 1 may lose records."""
    unknown: int = field(default=1, validator=whole(0))
    """Proposals of which the controller does not hear whether they were stored."""
    copies: int = field(default=0, validator=whole(0))
    """Messages that arrive and stay under way."""
    shrinks: int = field(default=1, validator=whole(0))
    """Proposals of a smaller ISR."""
    isr: tuple[int, ...] = ()
    """In sync at the beginning; everybody if empty. The first leads."""
    stale_notices: bool = False
    """Whether a broker may hear states older than the one it has. The first thing a partition does is to refuse them."""
    piecemeal: bool = False
    """Whether a leader answers with one batch at a time, so that it may be ahead of what it sends."""

    def __attrs_post_init__(self) -> None:
        brokers = f"there are brokers 1 to {self.replicas}"
        if self.min_isr > self.replicas:
            raise UsageError(f"min_isr is {self.min_isr}; allowed are 1 to {self.replicas} (replicas)")
        for what, broker in self.plan:
            if what not in CRASHES:
                raise UsageError(f"plan has {what}:{broker}; crashes are {', '.join(CRASHES)}")
            if not 1 <= broker <= self.replicas:
                raise UsageError(f"plan has {what}:{broker}; {brokers}")
        for broker in self.isr:
            if not 1 <= broker <= self.replicas:
                raise UsageError(f"isr has {broker}; {brokers}")
        if len(set(self.isr)) < len(self.isr):
            raise UsageError(f"isr is {','.join(map(str, self.isr))}; a broker is in it once")
