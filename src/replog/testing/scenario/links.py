"""Messages under way between places, one link per direction: they can be held, dropped, repeated and cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define

from replog.errors import UsageError
from replog.model import Address

__all__ = ["Envelope", "Links", "link"]

Link = tuple[str, str]


@define(eq=False)
class Envelope:
    """A message on its way from one place to another."""

    link: Link
    to: Address
    sender: Address
    message: Any


def link(text: str) -> Link:
    """`A>B`; `*` on either side is every place."""
    source, arrow, target = text.partition(">")
    if not arrow or not source or not target:
        raise UsageError(f"{text!r} is not a link; write A>B")
    return source, target


def _among(one: Link, links: dict[Link, None]) -> bool:
    source, target = one
    return any(pair in links for pair in ((source, target), (source, "*"), ("*", target), ("*", "*")))


class Links:
    """Every link of a stage. In order unless told otherwise."""

    def __init__(self) -> None:
        self.waiting: list[Envelope] = []
        self._held: dict[Link, None] = {}
        self._severed: dict[Link, None] = {}

    def post(self, envelope: Envelope) -> bool:
        """Put a message on its link; False if the link is cut: the message is gone."""
        if _among(envelope.link, self._severed):
            return False
        self.waiting.append(envelope)
        return True

    def is_held(self, one: Link) -> bool:
        """Whether messages wait there."""
        return _among(one, self._held)

    def hold(self, one: Link) -> None:
        """Messages stay on the link until it is released, or delivered by name."""
        self._held[one] = None

    def release(self, one: Link) -> None:
        """End a hold."""
        if one not in self._held:
            raise UsageError(f"{one[0]}>{one[1]} is not held")
        del self._held[one]

    def cut(self, one: Link) -> None:
        """From now on nothing passes; what was under way is lost."""
        self._severed[one] = None
        self.take(one)

    def heal(self, one: Link | None = None) -> None:
        """A link (None: no link at all) is cut any more."""
        for severed in [one] if one is not None else list(self._severed):
            if self._severed.pop(severed, self) is self:
                raise UsageError(f"{severed[0]}>{severed[1]} is not cut")

    def take(self, one: Link) -> list[Envelope]:
        """Everything that waits on the link, taken off it."""
        pattern = {one: None}
        taken = [envelope for envelope in self.waiting if _among(envelope.link, pattern)]
        self.waiting = [envelope for envelope in self.waiting if not _among(envelope.link, pattern)]
        return taken

    def repeat(self, one: Link) -> int:
        """Put a second copy of everything that waits on the link behind it; returns how many."""
        again = [Envelope(e.link, e.to, e.sender, e.message) for e in self.waiting if _among(e.link, {one: None})]
        self.waiting += again
        return len(again)

    def next(self, ready: Callable[[Envelope], bool]) -> Envelope | None:
        """The oldest message that nothing holds up, taken off its link."""
        for index, envelope in enumerate(self.waiting):
            if not self.is_held(envelope.link) and ready(envelope):
                return self.waiting.pop(index)
        return None
