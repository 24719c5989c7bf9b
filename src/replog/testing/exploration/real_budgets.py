"""How large a space of the real code is: how many of everything, and how often anything may go wrong."""

from __future__ import annotations

from attrs import frozen

__all__ = ["Budgets"]


@frozen
class Budgets:
    """How often things may happen in one run, and how large the cluster is."""

    replicas: int = 3
    min_isr: int = 2
    records: int = 2
    """Appended in all, each as a batch of its own."""
    epochs: int = 3
    """Leader epochs; what would begin another one does not happen."""
    crashes: int = 2
    """Processes that are killed, or back before their session has ended, and sessions that end alone, together."""
    plan: tuple[tuple[str, int], ...] = ()
    """What the crashes are ("kill", "restart", "expire") and whom they hit, in this order, instead of `crashes` of any kind."""
    powers: int = 0
    """Power failures: what was not flushed is gone, and nothing ever is flushed here. More than min_isr - 1 may lose records."""
    unknown: int = 1
    """Proposals of which the controller does not hear whether they were stored."""
    copies: int = 0
    """Messages that arrive and stay under way."""
    shrinks: int = 1
    """Proposals of a smaller ISR."""
    isr: tuple[int, ...] = ()
    """In sync at the beginning; everybody if empty. The first leads."""
    stale_notices: bool = False
    """Whether a broker may hear states older than the one it has. The first thing a partition does is to refuse them."""
    piecemeal: bool = False
    """Whether a leader answers with one batch at a time, so that it may be ahead of what it sends."""
