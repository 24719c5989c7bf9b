"""Which of the connections between two processes a message takes, so that nothing small waits behind megabytes."""

from __future__ import annotations

from typing import Any, Final

from replog import messages as m
from replog.messages import BROKER, CLIENT

__all__ = ["BULK", "CONTROL", "DATA", "LANES", "lane_of"]

CONTROL: Final = 0
"""Commands, proposals, heartbeats, and whatever else brokers and the controller tell each other."""
DATA: Final = 1
"""What an acknowledgement waits for; and all that a client asks, except for records."""
BULK: Final = 2
"""Records that nobody's acknowledgement waits for: a follower that catches up, and the reads of clients."""
LANES: Final = (CONTROL, DATA, BULK)

_DATA_TYPES: Final = frozenset({
    m.Produce, m.Produced, m.Fetch, m.Fetched, m.Flushed, m.ListOffsets, m.ListedOffsets, m.OffsetsForLeaderEpoch, m.Epochs
})  # fmt: skip


def lane_of(message: Any, role: str = BROKER) -> int:
    """The lane of a message that a process of this role sends to a broker. Answers to a client take the lane of the question."""
    kind = type(message)
    if role == CLIENT:
        return BULK if kind is m.Fetch else DATA
    if kind not in _DATA_TYPES:
        return CONTROL
    return BULK if (kind is m.Fetch or kind is m.Fetched) and message.catch_up else DATA
