"""What has arrived and is not delivered yet: what brokers say and what is told of them, before what clients ask."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from replog.model import Address
from replog.transport.tcp.outgoing import drop
from replog.transport.tcp.turns import DELIVER_REQUESTS_MAX
from replog.transport.tcp.whereabouts import ROUTINE, Whereabouts

__all__ = ["Inbox"]

Item = tuple[Address, Address, Any]
"""Receiver, sender, message."""


class Inbox:
    """Of one transport. Who puts something in appends it to one of the two queues: within each, what came first is delivered first."""

    def __init__(self, whereabouts: Whereabouts) -> None:
        self._whereabouts = whereabouts
        self.receivers: dict[Address, Callable[[Address, Any], None]] = {}
        self.brokers: deque[Item] = deque()
        """From other brokers, from this process, and about them."""
        self.clients: deque[Item] = deque()
        """From clients, and about them."""

    def tell(self, about: Address, message: Any) -> None:
        """Tell everybody who listens, behind what `about` has said."""
        queue = self.clients if type(about) is tuple and about[0] == "peer" else self.brokers
        queue.extend((listener, about, message) for listener in self.receivers)

    def deliver(self) -> int:
        """Deliver what is here now, of what clients ask `DELIVER_REQUESTS_MAX` at most, and return how many messages that were.

        What receivers send meanwhile is for the next call. What a receiver raises goes to the caller: that message is gone, the rest is
        delivered by the next call.
        """
        delivered = self._hand_over(self.brokers, len(self.brokers)) if self.brokers else 0
        if self.clients:
            delivered += self._hand_over(self.clients, min(len(self.clients), DELIVER_REQUESTS_MAX))
        return delivered

    def _hand_over(self, queue: deque[Item], count: int) -> int:
        delivered = 0
        for _ in range(count):
            if not queue:  # a receiver has closed the transport, or stopped listening
                break
            to, sender, message = queue.popleft()
            receive = self.receivers.get(to)
            if receive is None:
                drop(message)
            else:
                delivered += 1
                if type(message) not in ROUTINE:
                    self._whereabouts.doubtful = True
                receive(sender, message)
        return delivered

    def forget(self, address: Address) -> None:
        """Nobody listens there any more: what has arrived for it is dropped."""
        self.receivers.pop(address, None)
        for queue in (self.brokers, self.clients):
            left = [item for item in queue if item[0] != address]
            queue.clear()
            queue.extend(left)

    def clear(self) -> None:
        """Nobody listens at all."""
        for queue in (self.brokers, self.clients):
            for _to, _sender, message in queue:
                drop(message)
            queue.clear()
        self.receivers.clear()
