"""`replog controller`: which broker decides, since which epoch, and who has not acknowledged what it said."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from replog.cli.context import Context
from replog.cli.exits import BAD, OK
from replog.client.view import View
from replog.errors import Unavailable
from replog.status.acting import look

__all__ = ["controller", "seat_of"]


def seat_of(view: View, no_controller: str = "") -> dict[str, Any]:
    """The controller as plain values: the JSON of the command. `controller` is None while no serving broker has the seat, or whoever has it
    does not answer (`no_controller` says why)."""
    there = view.brokers.get(view.controller)
    serves = there is not None and not there.fenced and not no_controller
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller if serves else None,
        "controller_epoch": view.controller_epoch,
        "reason": no_controller,
        "endpoints": list(there.endpoints) if there is not None and serves else [],
        "unacknowledged": sorted(b.broker_id for b in view.brokers.values() if b.overdue),
    }


def controller(context: Context) -> int:
    """Say it once; with --watch again whenever it is another, with the time at which that was seen. No controller: status 1."""
    every_s: float | None = context.arguments.watch
    last: dict[str, Any] = {}
    with context.client() as client:
        while True:
            try:
                seen = look(client, context.timeout_s)
                seat = seat_of(seen.view, seen.no_controller)
            except Unavailable as nobody:
                if every_s is None:
                    raise
                seat = {"unreachable": str(nobody)}
            if seat != last:
                _show(context, seat, None if every_s is None else datetime.now(UTC))
                context.output.flush()
            if every_s is None:
                return BAD if seat["controller"] is None else OK
            last = seat
            context.output.rest(every_s)


def _show(context: Context, seat: dict[str, Any], seen: datetime | None) -> None:
    output = context.output
    time = None if seen is None else seen.isoformat(timespec="milliseconds")
    if output.is_json:
        output.json(seat if time is None else {"seen": time, **seat})
        return
    if "unreachable" in seat:
        words = f"nobody answers: {seat['unreachable']}"
    elif seat["controller"] is None:
        words = f"{seat['reason'] or 'no broker is the controller'}; the last epoch is {seat['controller_epoch']}"
    else:
        at = f" at {', '.join(seat['endpoints'])}" if seat["endpoints"] else ""
        words = f"broker {seat['controller']} is the controller, epoch {seat['controller_epoch']}{at}"
    output.line(words if time is None else f"{time}  {words}")
    if seat.get("unacknowledged"):
        output.line(f"have not acknowledged in time what it said: brokers {', '.join(map(str, seat['unacknowledged']))}")
