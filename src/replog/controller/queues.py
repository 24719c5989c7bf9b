"""The events that wait for their turn: urgent ones before those that can wait, each class in the order of asking."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol

from attrs import define, field

from replog.controller.events import (
    BrokerAcknowledged,
    CopiesGone,
    DeletionsSeen,
    Event,
    FinishDeletion,
    LastKnownAnswered,
    MovesDue,
    Recheck,
    RejectionsSeen,
    ShutdownAsked,
    SilenceChanged,
    WishesSeen,
    is_urgent,
)
from replog.metadata.layout import DELETE_TOPICS

__all__ = ["Observer", "Queued", "Queues", "row_of"]


_REPEATED = FinishDeletion | BrokerAcknowledged | CopiesGone | LastKnownAnswered
"""What is tried again with each `reconcile`, until it is stored."""


@define(eq=False)
class Queued:
    """An event, and how many decisions about it were not stored."""

    event: Event
    tries: int = 0
    since: float = 0.0
    """The observer's."""
    number: int = 0
    """When it was asked, in the order of asking; of what follows from another one: when that was."""


class Observer(Protocol):
    """Is told of each event, and decides nothing: what waits in place of another one of its kind is that one."""

    def asked(self, queued: Queued) -> None:
        """It waits for its turn from now on."""

    def done(self, queued: Queued) -> None:
        """It was decided and stored, or given up."""


def row_of(event: Event) -> str:
    """Where what an event is about was seen; "" if it was not seen in a row of the store."""
    match event:
        case DeletionsSeen():
            return DELETE_TOPICS
        case WishesSeen(row) | RejectionsSeen(_, row):
            return row
        case _:
            return ""


@define
class Queues:
    """What is asked twice in vain waits once: a slice of rechecks, the end of a deletion, the look at a row of wishes."""

    urgent: deque[Queued] = field(factory=deque)
    background: deque[Queued] = field(factory=deque)
    _finishing: set[bytes] = field(factory=set)
    """Ids of topics whose FinishDeletion waits."""
    _given_up: set[Event] = field(factory=set)
    """What was given up when it was tried last."""
    _later: dict[Event, None] = field(factory=dict)
    """What waits for `resume`."""
    _in_vain: dict[str, int] = field(factory=dict)
    rechecking: bool = False
    """Whether a Recheck waits: in turn with other urgent events, so that neither waits for all of the other."""
    observer: Observer | None = None
    asked: int = 0
    """The number of the event that was asked last."""

    def ask(self, event: Event, after: Queued | None = None) -> None:
        """Put an event at the end of its class; of looks at one row only the newest stays. `after`: what it follows from."""
        match event:
            case FinishDeletion(topic_id):
                if topic_id in self._finishing:
                    return
                self._finishing.add(topic_id)
            case WishesSeen(row, _, True) if any(self._looks_at(row, one) for one in self.background):
                return  # a later look shows what is left, too
            case WishesSeen(row):
                self.background = deque(one for one in self.background if not self._looks_at(row, one))
            case DeletionsSeen():
                for one in self.background:
                    if isinstance(one.event, DeletionsSeen):  # in its place: each deletion that ends has the row looked at again
                        one.event, one.tries = event, 0
                        return
            case MovesDue() if any(isinstance(one.event, MovesDue) for one in self.background):
                return
            case ShutdownAsked() | SilenceChanged() if any(one.event == event for one in self.urgent):
                return  # said again while it is under way
            case Recheck():
                if self.rechecking:
                    return
                self.rechecking = True
            case _:
                pass
        self.asked += 1
        queued = Queued(event, number=self.asked if after is None else after.number)
        (self.urgent if is_urgent(event) else self.background).append(queued)
        if self.observer is not None:
            self.observer.asked(queued)

    def next(self) -> Queued | None:
        """The event whose turn it is, at the head of its class; None if nothing waits."""
        return self.urgent[0] if self.urgent else self.background[0] if self.background else None

    def in_vain(self, what: str) -> int:
        """What was seen at a row could not be stored: how often that is since something of it was, or since `forgive`."""
        self._in_vain[what] = self._in_vain.get(what, 0) + 1
        return self._in_vain[what]

    def tries(self, queued: Queued) -> int:
        """How many decisions about this, the same event or what was seen at the same row, were not stored."""
        return max(queued.tries, self._in_vain.get(row_of(queued.event), 0))

    def forgive(self) -> None:
        """Every row may be tried again, and whatever was put off."""
        self._in_vain.clear()
        self.resume()

    def put_off(self, events: Iterable[Event]) -> None:
        """Nobody else will ask for these again: they wait for `resume`."""
        self._later.update(dict.fromkeys(events))

    def resume(self) -> None:
        """Ask for what was put off."""
        later, self._later = self._later, {}
        for event in later:
            self.ask(event)

    def given_up(self, event: Event) -> bool:
        """An event could not be stored. Whether people are to be told: once of what is tried again with each `reconcile`, and not of
        rechecks, whose partitions are told one by one."""
        if isinstance(event, BrokerAcknowledged | CopiesGone):
            self.put_off((event,))
        if isinstance(event, _REPEATED):
            is_news = event not in self._given_up
            self._given_up.add(event)
            return is_news
        return not isinstance(event, Recheck)

    def done(self, queued: Queued, *, stored: bool = True) -> None:
        """An event that was the next one has been decided and `stored`, or given up. Others may have been asked for meanwhile."""
        if self.observer is not None:
            self.observer.done(queued)
        if stored:
            self._in_vain.pop(row_of(queued.event), None)
        with suppress(ValueError):  # a look whose row was looked at again meanwhile waits no more
            (self.urgent if is_urgent(queued.event) else self.background).remove(queued)
        if isinstance(queued.event, Recheck):
            self.rechecking = False
        elif isinstance(queued.event, FinishDeletion):
            self._finishing.discard(queued.event.topic_id)
        if stored and isinstance(queued.event, _REPEATED):
            self._given_up.discard(queued.event)

    @staticmethod
    def _looks_at(row: str, queued: Queued) -> bool:
        return isinstance(queued.event, WishesSeen) and queued.event.row == row

    def __len__(self) -> int:
        return len(self.urgent) + len(self.background)

    def waiting(self) -> Iterator[Event]:
        """Everything that waits."""
        return (queued.event for queued in (*self.urgent, *self.background))
