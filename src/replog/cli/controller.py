"""`replog controller`: which broker decides, since when, how much waits there, and who has not acknowledged what it said."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final

from replog.cli.context import Context
from replog.cli.exits import BAD, OK
from replog.cli.times import time_of
from replog.cli.units import Units
from replog.client.results import ControllerDescription
from replog.client.view import View
from replog.errors import Unavailable
from replog.status.acting import look

__all__ = ["controller", "seat_of"]

_PASSING: Final = ("queued_events", "due_partitions")
"""What is another number at each look: no reason to tell the rest again."""


def seat_of(view: View, no_controller: str = "", known: ControllerDescription | None = None) -> dict[str, Any]:
    """The controller as plain values: the JSON of the command. `controller` is None while no serving broker has the seat, or whoever has it
    does not answer (`no_controller` says why). `known` is what it says of itself; None where that is not known."""
    there = view.brokers.get(view.controller)
    serves = there is not None and not there.fenced and not no_controller
    said = known.to_dict() if known is not None and serves else {}
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller if serves else None,
        "controller_epoch": view.controller_epoch,
        **{name: said.get(name) for name in ("since_ms", *_PASSING)},
        "reason": no_controller,
        "endpoints": list(there.endpoints) if there is not None and serves else [],
        "unacknowledged": sorted(b.broker_id for b in view.brokers.values() if b.overdue),
    }


def controller(context: Context) -> int:
    """Say it once; with --watch again whenever it is another, with the time at which that was seen. No controller: status 1."""
    every_s: float | None = context.arguments.watch
    told: dict[str, Any] = {}
    with context.client() as client:
        while True:
            try:
                seen = look(client, context.timeout_s)
                seat = seat_of(seen.view, seen.no_controller, seen.controller)
            except Unavailable as nobody:
                if every_s is None:
                    raise
                seat = {"unreachable": str(nobody)}
            lasting = {key: value for key, value in seat.items() if key not in _PASSING}
            if lasting != told:
                _show(context, seat, None if every_s is None else datetime.now(UTC))
                context.output.flush()
            if every_s is None:
                return BAD if seat["controller"] is None else OK
            told = lasting
            context.output.rest(every_s)


def _show(context: Context, seat: dict[str, Any], seen: datetime | None) -> None:
    output = context.output
    when = None if seen is None else seen.isoformat(timespec="milliseconds")
    if output.is_json:
        output.json(seat if when is None else {"seen": when, **seat})
        return
    if "unreachable" in seat:
        words = f"nobody answers: {seat['unreachable']}"
    elif seat["controller"] is None:
        words = f"{seat['reason'] or 'no broker is the controller'}; the last epoch is {seat['controller_epoch']}"
    else:
        at = f" at {', '.join(seat['endpoints'])}" if seat["endpoints"] else ""
        words = f"broker {seat['controller']} is the controller, epoch {seat['controller_epoch']}{at}"
    output.line(words if when is None else f"{when}  {words}")
    if seat.get("controller") is not None:
        output.line(f"in office since: {_since(seat['since_ms'], output.units)}")
        output.line(f"waiting there: {_waiting(seat['queued_events'], seat['due_partitions'])}")
    if seat.get("unacknowledged"):
        output.line(f"have not acknowledged in time what it said: brokers {', '.join(map(str, seat['unacknowledged']))}")


def _since(since_ms: int | None, units: Units) -> str:
    """When it took office by its own clock, and how long ago that is by ours; without that where ours is behind."""
    if since_ms is None:
        return "unknown"
    ago_s = time.time() - since_ms / 1_000
    return f"{time_of(since_ms).partition('.')[0]} UTC{f', for {units.time(ago_s)}' if ago_s >= 0 else ''}"


def _waiting(events: int | None, partitions: int | None) -> str:
    """How much was waiting when it was asked."""
    if events is None and partitions is None:
        return "unknown"
    counted = ((events, "event"), (partitions, "partition"))
    return ", ".join(f"{'?' if count is None else count} {what}{'' if count == 1 else 's'}" for count, what in counted)
