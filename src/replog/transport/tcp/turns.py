"""How much of what clients say one turn takes in: a broker has more to do than that, its session in the store above all."""

from __future__ import annotations

from typing import Any, Final

from replog.messages import Admin, Fetch, ListOffsets, Metadata, OffsetsForLeaderEpoch

__all__ = [
    "DELIVER_MS_MAX", "DELIVER_REQUESTS_MAX", "HANDLE_BYTES_MAX", "HANDLE_LONG_MAX", "HANDLE_MS_MAX", "HANDLE_REQUESTS_MAX", "QUICK_BYTES",
    "may_take_long",
]  # fmt: skip

HANDLE_BYTES_MAX: Final = 16 << 20
"""Read from all connections before what they said is delivered: with what it becomes, the memory of one turn."""
HANDLE_REQUESTS_MAX: Final = 1_000
"""Of clients, in one turn: who has none of them in it is first in the next."""
HANDLE_LONG_MAX: Final = 4
"""Of those that may take long: one of a connection, so many of all. Ten clients that asked for views kept a broker from its session."""
HANDLE_MS_MAX: Final = 200
"""No further connection is read once a turn has taken so long: some bytes take ten thousand times as long to decode as others."""
DELIVER_REQUESTS_MAX: Final = 64
"""Requests of clients that are handed over before it is looked how long they take: enough to share a write and an answer."""
DELIVER_MS_MAX: Final = 200
"""No further request of a client is handed over once a turn has taken so long: the rest waits for the next, in order."""
QUICK_BYTES: Final = 64 << 10
"""Whatever so few bytes say does not take that long to decode: the clock is not asked."""
_FEW: Final = 16
"""Partitions of a question about offsets that are answered at once. Clients ask about one."""


def may_take_long(message: Any) -> bool:
    """Whether a request of a client is of those that may take long to answer."""
    kind = type(message)
    if kind is Fetch:
        return bool(message.verify)
    if kind is ListOffsets or kind is OffsetsForLeaderEpoch:
        return len(message.entries) > _FEW
    return kind is Admin or kind is Metadata
