"""What actors ask of their drivers and get from them, and the transport port."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

from attrs import define

from replog.errors import ReplogError
from replog.model import Address
from replog.ports.logs import FlushToken
from replog.ports.stores import SessionState

__all__ = [
    "Actor",
    "Event",
    "FlushDone",
    "Ids",
    "Outbox",
    "SessionChanged",
    "StoreCall",
    "StoreResult",
    "Transport",
    "WatchFired",
]


class Transport(ABC):
    """Carries messages between actors. May drop, delay, repeat and reorder; delivers to one `receive` per listener, one at a time.

    After `close`, which may be called again, it delivers nothing any more, and holds nothing.
    """

    @abstractmethod
    def listen(self, address: Address, receive: Callable[[Address, Any], None]) -> None:
        """Deliver what is sent to `address` to `receive(sender, message)`. UsageError if somebody listens there."""

    @abstractmethod
    def unlisten(self, address: Address) -> None:
        """Stop delivering; messages under way are dropped. Idempotent.

        What another process has sent may still come to whoever listens there later: actors know by its epochs that it is old.
        """

    @abstractmethod
    def send(self, sender: Address, to: Address, message: Any) -> None:
        """Never blocks, never raises for an unknown or dead address, nor because too much waits: the message is dropped.

        Never calls a `receive` itself.
        """

    @abstractmethod
    def close(self) -> None: ...


@define
class StoreCall:
    """A store operation an actor wants done: the driver runs it (elsewhere if it blocks) and answers with a StoreResult."""

    call: int
    """Chosen by the actor; comes back in the result."""
    verb: Literal["read", "list", "read_each", "commit", "commit_each", "watch"]
    argument: Any


@define
class StoreResult:
    """What became of a StoreCall: `error` is Conflict, UnknownOutcome, SessionLost or None."""

    call: int
    value: Any = None
    error: ReplogError | None = None


@define
class WatchFired:
    """A watched path changed: look again."""

    path: str


@define
class SessionChanged:
    """The store session is suspended, connected again, or lost."""

    state: SessionState


@define
class FlushDone:
    """A flush token has run."""

    token: FlushToken


class Event(NamedTuple):
    """Something worth telling a person: goes to logging and metrics, never back into an actor."""

    name: str
    fields: dict[str, Any]


class Outbox:
    """What an actor wants done after `receive` or `tick` returned. The driver takes everything, in order."""

    __slots__ = ("calls", "events", "flushes", "messages")

    def __init__(self) -> None:
        self.messages: list[tuple[Address, Any]] = []
        self.calls: list[StoreCall] = []
        self.flushes: list[FlushToken] = []
        self.events: list[Event] = []


class Actor(Protocol):
    """Run to completion: told a message and the time, answers by filling its outbox (design, section 2)."""

    outbox: Outbox

    def receive(self, sender: Address, message: Any, now_ms: int) -> None: ...

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """End of a poll: answer what became ready, run timers that are due."""

    def deadline_ms(self) -> int | None:
        """When `tick` is needed next even if no message comes; None: never."""


class Ids(Protocol):
    """Identifiers and jitter, injected so that a seed decides them."""

    def token(self) -> bytes:
        """16 random bytes."""

    def number(self) -> int:
        """63 random bits."""

    def jitter(self) -> float:
        """Uniform in [0, 1)."""
