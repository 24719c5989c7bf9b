"""How a broker asks its controller to be let go, and when it may leave (PROTOCOL 4.9).

It goes on as before until then: it applies notices, so that it stops to lead what others lead now (KAFKA-14296), and asks again,
as it must when a request, an answer or the controller is lost.
"""

from __future__ import annotations

from typing import Any

from replog.broker.commands import Commands
from replog.errors import Code
from replog.messages import ControlledShutdown, ControlledShutdownAnswer
from replog.model import Address, PartitionId
from replog.ports import Event, Outbox

__all__ = ["Leaving"]


class Leaving:
    """The wish of one broker to leave; for the rest of its process."""

    def __init__(self, broker_id: int, outbox: Outbox, commands: Commands) -> None:
        self._broker_id = broker_id
        self._outbox = outbox
        self._commands = commands
        self._wanted = False
        self._granted: ControlledShutdownAnswer | None = None

    def on_leave(self, sender: Address, message: Any, now_ms: int) -> None:
        """The driver wants to end this process."""
        self._wanted = True
        self.ask()

    def ask(self) -> None:
        """Ask, unless that is not wanted or has been granted: with each heartbeat, for as long as it takes."""
        commands = self._commands
        if self._wanted and not self._holds() and commands.controller is not None and commands.broker_epoch >= 0:
            request = ControlledShutdown(self._broker_id, commands.broker_epoch)
            self._outbox.messages.append((("controller", commands.controller), request))

    def on_answer(self, sender: Address, message: ControlledShutdownAnswer, now_ms: int) -> None:
        """The controller's word. Of an earlier life or controller it counts for nothing: the numbers of its notices do not either."""
        if message.error != Code.NONE:
            return
        if self._granted is None or not self._holds() or message.controller_epoch > self._granted.controller_epoch:
            self._granted = message
            fields = {"broker": self._broker_id, "notice": message.notice, "remaining": message.remaining_total}
            self._outbox.events.append(Event("shutdown_granted", fields))

    def _holds(self) -> bool:
        granted, commands = self._granted, self._commands
        if granted is None:
            return False
        return granted.broker_epoch == commands.broker_epoch and granted.controller_epoch == commands.controller_epoch

    @property
    def is_over(self) -> bool:
        """Whether it may leave: whatever others lead instead, it has heard of."""
        return self._holds() and self._granted is not None and self._commands.notice >= self._granted.notice

    @property
    def remaining(self) -> list[PartitionId]:
        """Some of the partitions that nobody else could take over."""
        return [] if self._granted is None else self._granted.remaining
