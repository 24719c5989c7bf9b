"""Becoming the controller, and finding out whether one still is (P-60, P-61)."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from replog.controller.reading import Reader, Script
from replog.metadata import layout
from replog.ports import Check, Conflict, Create, Delete, Op, Put, Versioned

__all__ = ["Deposed", "Won", "campaign", "still_seated"]


class Deposed(Exception):
    """Another controller has been elected, or this one cannot know that none was."""


@frozen
class Won:
    """The seat is ours: under which epoch, and at which version of the epoch's node."""

    controller_epoch: int
    epoch_version: int


def campaign(reader: Reader, broker_id: int, attempted: Sequence[int], abandoned: Sequence[int]) -> Script:
    """Take the seat if it is free: `Won`; or the creation number of the seat that another has (0: somebody was faster just now).

    Yields ("attempt", epoch) before it tries. The seat and the next epoch are one transaction. `attempted` are epochs whose
    outcome was never heard: a seat of ours with such an epoch is won, unless it is in `abandoned`: we have resigned from
    those. Any other seat of ours is given up first.
    """
    yield from reader.watch(layout.CONTROLLER)
    stored: Versioned | None = yield "read", layout.CONTROLLER_EPOCH  # first: whoever wins after this changes it
    seat: Versioned | None = yield "read", layout.CONTROLLER
    epoch = 0 if stored is None else layout.decode_controller_epoch(layout.CONTROLLER_EPOCH, stored.value)
    if seat is not None:
        held = layout.decode_controller(layout.CONTROLLER, seat.value)
        if held.broker_id != broker_id:
            return seat.created
        if stored is not None and held.controller_epoch == epoch and epoch in attempted and epoch not in abandoned:
            return Won(epoch, stored.version)
        # Of an earlier term or life of this broker, which has the registration now: nobody else will give the seat up.
        # Every seat has version 0: only the epoch tells this one from that of somebody who has won meanwhile.
        unchanged = Check(layout.CONTROLLER_EPOCH, -1 if stored is None else stored.version)
        yield "commit", [unchanged, Delete(layout.CONTROLLER, seat.version)]
    value = layout.encode_controller_epoch(epoch + 1)
    claim: Op = Create(layout.CONTROLLER_EPOCH, value)
    if stored is not None:
        claim = Put(layout.CONTROLLER_EPOCH, value, stored.version)
    taken = layout.encode_controller(layout.ControllerSeat(broker_id, epoch + 1))
    yield "attempt", epoch + 1
    try:
        yield "commit", [Create(layout.CONTROLLER, taken, ephemeral=True), claim]
    except Conflict:
        return 0
    return Won(epoch + 1, 0 if stored is None else stored.version + 1)


def still_seated(reader: Reader, broker_id: int, controller_epoch: int) -> Script:
    """Whether the store still has this broker as the controller of this epoch."""
    yield from reader.watch(layout.CONTROLLER)
    seat, stored = yield "read_each", [layout.CONTROLLER, layout.CONTROLLER_EPOCH]
    if seat is None or stored is None:
        return False
    held = layout.decode_controller(layout.CONTROLLER, seat.value)
    epoch = layout.decode_controller_epoch(layout.CONTROLLER_EPOCH, stored.value)
    return held.broker_id == broker_id and held.controller_epoch == controller_epoch == epoch
