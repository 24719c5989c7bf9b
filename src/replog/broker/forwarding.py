"""Wishes of clients, passed on to the controller: any broker takes them, and brings the answer back."""

from __future__ import annotations

from collections.abc import Mapping

from replog.broker.followers import FOLLOWERS, followers
from replog.broker.progress import PROGRESS, progress
from replog.errors import Code
from replog.messages import Admin, AdminAnswer
from replog.model import Address, PartitionId
from replog.partition.partition import Partition
from replog.ports import Outbox

__all__ = ["Forwarding"]

_UNDER_WAY_MAX = 1_000


class Forwarding:
    """Which client asked what: by a number of this broker's own, which comes back with the controller's answer."""

    def __init__(self, outbox: Outbox, partitions: Mapping[PartitionId, Partition]) -> None:
        self._outbox = outbox
        self._partitions = partitions
        self._under_way: dict[int, tuple[Address, int]] = {}
        self._number = 0

    def forward(self, client: Address, wish: Admin, controller: int | None, now_ms: int) -> None:
        """Pass a wish on; without a controller the client is told to try again. What only this broker knows it answers itself."""
        if wish.verb == PROGRESS:
            self._outbox.messages.append((client, progress(self._partitions, wish)))
            return
        if wish.verb == FOLLOWERS:
            self._outbox.messages.append((client, followers(wish, self._partitions, now_ms)))
            return
        if controller is None:
            self._outbox.messages.append((client, AdminAnswer(wish.request, Code.NOT_CONTROLLER, "no controller is known here yet")))
            return
        self._number += 1
        self._under_way[self._number] = (client, wish.request)
        while len(self._under_way) > _UNDER_WAY_MAX:  # never answered: their clients have long given up
            del self._under_way[next(iter(self._under_way))]
        self._outbox.messages.append((("controller", controller), Admin(wish.request, wish.verb, wish.arguments, self._number)))

    def answered(self, answer: AdminAnswer) -> None:
        """Bring the controller's answer to whoever asked."""
        found = self._under_way.pop(answer.origin, None)
        if found is not None:
            client, request = found
            self._outbox.messages.append((client, AdminAnswer(request, answer.error, answer.message, answer.result)))
