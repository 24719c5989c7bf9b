"""Wishes of clients, passed on to the controller: any broker takes them, and brings the answer back.

A wish has a number of this broker's own, and the broker epoch: the answer to a wish of an earlier life may yet come, and must not
be taken for that to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replog.broker.commands import Commands
from replog.broker.followers import FOLLOWERS, followers
from replog.broker.missing import MissingTopics
from replog.broker.routing import Routing
from replog.config import BrokerConfig
from replog.errors import Code
from replog.messages import Admin, AdminAnswer, Disconnected, Unreached
from replog.model import Address, PartitionId
from replog.partition.partition import Partition
from replog.ports import Outbox

__all__ = ["Forwarding"]

_UNDER_WAY_MAX: Final = 10_000
"""Wishes that are with a controller, of all clients together: for one more, the oldest is waited for no longer."""
_UNDER_WAY_EACH_MAX: Final = 1_000
"""... and of one client: for one more, its own oldest. Nobody is refused for good by what a controller has never answered."""


class Forwarding:
    """Which client asked what: by the broker epoch and a number of this life, which come back with the controller's answer."""

    def __init__(self, outbox: Outbox, partitions: Mapping[PartitionId, Partition], routing: Routing, config: BrokerConfig) -> None:
        self.missing = MissingTopics(outbox, routing, config)
        self._outbox = outbox
        self._partitions = partitions
        self._under_way: dict[tuple[int, int], tuple[Address, int, int]] = {}
        """(Broker epoch, number) -> who asked, the number of the request there, and the broker whose controller has it; oldest first."""
        self._of_client: dict[Address, dict[tuple[int, int], None]] = {}
        """Which of these each client has asked for, oldest first."""
        self._number = 0

    def forward(self, client: Address, wish: Admin, commands: Commands, now_ms: int) -> None:
        """Pass a wish on; without a controller the client is told to try again. What only this broker knows it answers itself."""
        controller = commands.controller
        if wish.verb == FOLLOWERS:
            self._outbox.messages.append((client, followers(wish, self._partitions, now_ms)))
            return
        if controller is None:
            self._outbox.messages.append((client, AdminAnswer(wish.request, Code.NOT_CONTROLLER, "no controller is known here yet")))
            return
        mine = self._of_client.get(client, {})
        if len(mine) >= _UNDER_WAY_EACH_MAX:
            self._in_doubt(next(iter(mine)), "too many wishes of this client wait for the controller")
        elif len(self._under_way) >= _UNDER_WAY_MAX:
            self._in_doubt(next(iter(self._under_way)), "too many wishes wait for the controller")
        self._number += 1
        origin = (commands.broker_epoch, self._number)
        self._under_way[origin] = (client, wish.request, controller)
        self._of_client.setdefault(client, {})[origin] = None
        self._outbox.messages.append((("controller", controller), Admin(wish.request, wish.verb, wish.arguments, list(origin))))

    def answered(self, answer: AdminAnswer, broker_epoch: int, now_ms: int) -> None:
        """Bring the controller's answer to whoever asked."""
        if self.missing.answered(answer, broker_epoch, now_ms):
            return
        match answer.origin:
            case [int() as epoch, int() as number]:
                found = self._take((epoch, number))
            case _:
                found = None
        if found is not None:
            client, request, _ = found
            self._outbox.messages.append((client, AdminAnswer(request, answer.error, answer.message, answer.result)))

    def on_unreached(self, sender: Address, message: Unreached, now_ms: int) -> None:
        """The controller has not been sent a wish: whoever asked is told so, and may ask again."""
        origin = message.message.origin
        found = self._take((origin[0], origin[1])) if origin is not None else None
        if found is not None:
            client, request, controller = found
            text = f"broker {controller}, the controller's as far as is known here, is not reached"
            self._outbox.messages.append((client, AdminAnswer(request, Code.NOT_CONTROLLER, text)))

    def disconnected(self, lost: Disconnected) -> None:
        """The wishes that this controller has, or their answers, may be lost, and nobody repeats them but who asked: tell that one."""
        if lost.only_reads or not (type(lost.address) is tuple and lost.address[0] == "controller"):
            return
        for origin in [o for o, (_, _, at) in self._under_way.items() if lost.address == ("controller", at)]:
            self._in_doubt(origin, "the broker that passed it on has lost the controller")

    def _in_doubt(self, origin: tuple[int, int], why: str) -> None:
        """An answer is waited for no longer: whoever asked is told that it timed out, which says that it may have been granted."""
        found = self._take(origin)
        if found is not None:
            client, request, _ = found
            text = f"{why}; whether it was carried out is unknown"
            self._outbox.messages.append((client, AdminAnswer(request, Code.REQUEST_TIMED_OUT, text)))

    def _take(self, origin: tuple[int, int]) -> tuple[Address, int, int] | None:
        found = self._under_way.pop(origin, None)
        if found is not None:
            mine = self._of_client[found[0]]
            del mine[origin]
            if not mine:
                del self._of_client[found[0]]
        return found
