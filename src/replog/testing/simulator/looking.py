"""How checks look at what brokers have: no fault of a simulated disk comes in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from replog.errors import ReplogError
from replog.ports import Slice
from replog.records import BadBatch
from replog.testing.disk import SimulatedDisk
from replog.testing.simulator.ledger import header_at

if TYPE_CHECKING:
    from replog.testing.simulator.invariants import Headers
    from replog.testing.simulator.node import Node

__all__ = ["disk_of", "headers_of", "observing"]

_NOTHING_ARMED: Final = nullcontext()


def disk_of(node: Node) -> tuple[str, object]:
    """Which directory a broker has, and on which disk."""
    return node.directory.directory_id, getattr(node.directory, "fs", None)


def observing(node: Node) -> AbstractContextManager[None]:
    """While the checks read, a simulated disk injects nothing."""
    disk = getattr(node.directory, "fs", None)
    return _disarmed(disk) if isinstance(disk, SimulatedDisk) and disk._armed else _NOTHING_ARMED


@contextmanager
def _disarmed(disk: SimulatedDisk) -> Iterator[None]:
    armed, disk._armed = disk._armed, {}
    try:
        yield
    finally:
        disk._armed = armed


def headers_of(piece: Slice) -> Headers:
    """What stands in a slice; or why that cannot be read."""
    try:
        view, at, headers = piece.view(), 0, []
        while at < len(view):
            headers.append(header_at(view, at))
            at += headers[-1].length
    except (BadBatch, ReplogError, OSError) as problem:
        return str(problem)
    return headers
