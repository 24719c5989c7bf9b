"""What one reader wants of a leader: of which partitions, from where on, and what it has been told of each (KIP-227)."""

from __future__ import annotations

from typing import Final

from attrs import define, field

from replog.messages import FetchedEntry
from replog.model import Address, PartitionId
from replog.partition.partition import Partition
from replog.partition.replica import Contact

__all__ = ["Asked", "Session", "join", "leave"]

_FEW: Final = 16
"""As many sessions of one partition are kept in a tuple."""


_Known = tuple["Session", ...] | dict["Session", None]


@define(eq=False)
class Asked:
    """What a reader has asked of one partition."""

    leader_epoch: int
    offset: int
    max_bytes: int
    request: int = -1
    """Of the fetch that named the partition last. A broker numbers its fetches over both lanes."""
    answer: FetchedEntry | None = None
    """An error or a divergence to be told; the reader will ask again."""
    told: bool = False
    """Data or an error went out: nothing more until the reader names the partition again."""
    welcome: bool = False
    """In this epoch an answer without error or divergence went out: the reader knows that its log is a prefix of this one."""


@define(eq=False)
class Session:
    """One reader's interests. `request` is the fetch that waits for an answer; None while the reader is busy."""

    reader: Address
    replica: int
    broker_epoch: int
    number: int
    contact: Contact
    catch_up: bool = False
    epoch: int = 0
    opened: int = -1
    """The follower's fetch that opened this session: an older one, arriving late, must not replace it."""
    asked: dict[PartitionId, Asked] = field(factory=dict)
    ready: dict[PartitionId, None] = field(factory=dict)
    """Partitions with something to tell, in the order they became so."""
    news: dict[PartitionId, None] = field(factory=dict)
    """Partitions whose high watermark moved: told along with the next answer, never worth one by themselves (KAFKA-9952)."""
    request: int | None = None
    deadline_ms: int = 0
    max_bytes: int = 0
    verify: bool = False
    """The reader got damaged bytes last time: check them before they go out again."""
    woken: bool = False
    """It stands among those that have something to hear (`parked`)."""
    is_follower: bool = field(init=False)
    """A replica's session, as against a client's fetch."""

    def __attrs_post_init__(self) -> None:
        self.is_follower = self.replica >= 0


def join(partition: Partition, session: Session) -> None:
    """From now on the session hears of the partition."""
    if session.is_follower:
        partition.sessions = _with(partition.sessions, session)
    else:
        partition.readers = _with(partition.readers, session)


def leave(partition: Partition, session: Session) -> None:
    """It does no longer."""
    if session.is_follower:
        partition.sessions = _without(partition.sessions, session)
    else:
        partition.readers = _without(partition.readers, session)


def _with(known: _Known, session: Session) -> _Known:
    """Few are a tuple, which is small; of many none is searched for."""
    if session in known:
        return known
    if isinstance(known, dict):
        known[session] = None
        return known
    return (*known, session) if len(known) < _FEW else dict.fromkeys((*known, session))


def _without(known: _Known, session: Session) -> _Known:
    if not isinstance(known, dict):
        return tuple(s for s in known if s is not session)
    known.pop(session, None)
    return tuple(known) if len(known) < _FEW else known
