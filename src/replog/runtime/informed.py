"""What the brokers of a cluster in one process know of it: one that was let in, in its present life, has been told everything, and another
one nothing yet. That it knows of no topic does not say that there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replog.errors import Unavailable, UsageError
from replog.runtime.embedded_broker import EmbeddedBroker

__all__ = ["check_removable", "informed", "out_of_sync"]


def informed(running: Mapping[int, EmbeddedBroker]) -> EmbeddedBroker | None:
    """One that knows that it is let in; None: nobody does now."""
    lives = list(running.values())
    return next((one for one in lives if one.knows_unfenced({one.broker_id: one.broker.broker_epoch})), None)


def check_removable(
    running: Mapping[int, EmbeddedBroker], stopped: Iterable[int], broker_id: int, *, has_left: bool = False
) -> None:
    """UsageError unless this is the last broker, another one stays, and it holds no copy; Unavailable if nobody knows what it holds.

    `has_left`: it was stopped for that, and is to be so still.
    """
    if has_left and broker_id in running:
        raise UsageError(f"broker {broker_id} was started again while it was being removed")
    known = sorted([*running, *stopped])
    if broker_id != known[-1] or len(known) == 1:
        raise UsageError(f"broker {broker_id!r} cannot be removed: brokers are {known}, and the last may go, if another stays")
    witness = informed({number: one for number, one in running.items() if number != broker_id})  # who stays is to know it afterwards, too
    if witness is None:
        raise Unavailable(f"what broker {broker_id} holds is not known: no other broker runs that the controller has let in")
    held = witness.copies_on(broker_id)
    if held:
        raise UsageError(f"broker {broker_id} holds copies of {', '.join(held[:5])}")


def out_of_sync(running: Mapping[int, EmbeddedBroker]) -> list[str]:
    """Partitions without a leader or without their full ISR, for people; empty if every replica is in sync."""
    witness = informed(running)
    if witness is None:
        return ["all: no broker runs that the controller has let in" if running else "all: no broker runs"]
    return witness.out_of_sync()
