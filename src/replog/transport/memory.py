"""Messages between actors of one process: a queue that the driver pumps. Payloads are shared, never copied."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from replog.errors import UsageError
from replog.model import Address
from replog.ports import Transport

__all__ = ["Envelope", "Intercept", "MemoryTransport"]

Receive = Callable[[Address, Any], None]
Envelope = tuple[Address, Address, Any]
"""Sender, receiver, message."""
Intercept = Callable[[Address, Address, Any], Iterable[Envelope]]
"""What becomes of one message: itself, nothing (lost), several (repeated), others that were held back (reordered)."""


class _Listener:
    """One life of an address: what was sent to an earlier one is not delivered to a later one."""

    __slots__ = ("live", "receive")

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.live = True


class MemoryTransport(Transport):
    """Delivers in the order sent. `send` may be called from any thread, `deliver` from one at a time: it is a queue, not recursion.

    `intercept`, if set, decides what becomes of each message as it is sent.
    """

    def __init__(self, *, intercept: Intercept | None = None) -> None:
        self.intercept = intercept
        self._listeners: dict[Address, _Listener] = {}
        self._queue: deque[tuple[_Listener, Address, Any]] = deque()
        self._closed = False
        self._delivering = False

    def __len__(self) -> int:
        """Messages under way."""
        return len(self._queue)

    def listen(self, address: Address, receive: Receive) -> None:
        """Deliver what is sent to `address`, from now on, to `receive(sender, message)`."""
        if self._closed:
            raise UsageError("the transport is closed")
        if address in self._listeners:
            raise UsageError(f"somebody listens at {address!r} already")
        self._listeners[address] = _Listener(receive)

    def unlisten(self, address: Address) -> None:
        """Stop delivering to `address`; messages under way to it are dropped. Idempotent."""
        listener = self._listeners.pop(address, None)
        if listener is not None:
            listener.live = False

    def send(self, sender: Address, to: Address, message: Any) -> None:
        """Put a message in the queue; dropped if nobody listens."""
        if self.intercept is None:
            self._post(sender, to, message)
        else:
            for envelope in self.intercept(sender, to, message):
                self._post(*envelope)

    def _post(self, sender: Address, to: Address, message: Any) -> None:
        listener = self._listeners.get(to)
        if listener is not None:
            self._queue.append((listener, sender, message))

    def deliver(self, limit: int | None = None) -> int:
        """Hand over at most `limit` messages, also those that receivers send meanwhile; returns how many: 0 means none is left.

        What a receiver raises goes to the caller; its message is gone, the rest stays in the queue.
        """
        assert not self._delivering, "deliver was called by a receiver"
        self._delivering = True
        delivered = 0
        queue = self._queue
        try:
            while queue and (limit is None or delivered < limit):
                listener, sender, message = queue.popleft()
                if listener.live:
                    delivered += 1
                    listener.receive(sender, message)
        finally:
            self._delivering = False
        return delivered

    def close(self) -> None:
        """Drop everything and everybody. Idempotent."""
        self._closed = True
        for address in list(self._listeners):
            self.unlisten(address)
        self._queue.clear()
