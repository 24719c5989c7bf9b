"""What a broker tells its controller unasked: how far it is with its notices, and which of its copies have failed.

That a copy has failed, or could never be made in a directory that has, is said with every heartbeat, for as long as it is true:
a report or an answer may be lost, and controllers change.
"""

from __future__ import annotations

from collections.abc import Mapping

from replog.broker.commands import Commands
from replog.messages import Heartbeat, ReplicasFailed
from replog.model import PartitionId
from replog.partition.partition import Partition
from replog.ports import Log, LogDirectory, Outbox

__all__ = ["Reports"]


class Reports:
    """The reports of one broker."""

    def __init__(self, broker_id: int, outbox: Outbox, commands: Commands, partitions: Mapping[PartitionId, Partition]) -> None:
        self._broker_id = broker_id
        self._outbox = outbox
        self._commands = commands
        self._partitions = partitions
        self._reason = ""
        """Why copies here failed last; empty while none has."""
        self.directory_failed = ""
        """Why the whole directory has failed; empty while it has not."""
        self.left: dict[PartitionId, Log] = {}
        """What it held then, and nobody served."""

    def heartbeat(self) -> None:
        """To the controller, if there is one and this broker is registered."""
        commands = self._commands
        if commands.controller is None or commands.broker_epoch < 0:
            return
        beat = Heartbeat(self._broker_id, commands.broker_epoch, commands.controller_epoch, commands.notice)
        self._outbox.messages.append((("controller", commands.controller), beat))
        failed = [identity for identity, partition in self._partitions.items() if partition.failed] if self._reason else []
        if failed or commands.unmade:
            self._send([*failed, *commands.unmade], commands.problem or self._reason)

    def lost(self, directory: LogDirectory, reason: str) -> bool:
        """The whole directory takes no part any more. False if that is known."""
        if self.directory_failed:
            return False
        self.directory_failed = reason
        logs = ((one, directory.get(one)) for one in directory.identities() if one not in self._partitions)
        self.left = {one: log for one, log in logs if log is not None}
        return True

    def failed(self, partitions: list[PartitionId], reason: str) -> None:
        """These copies take no part any more."""
        self._reason = reason
        self._send(partitions, reason)

    def _send(self, partitions: list[PartitionId], reason: str) -> None:
        commands = self._commands
        if commands.controller is not None:
            sayable = reason.encode("utf-8", "backslashreplace").decode()  # it may name a folder, whose name need not be UTF-8
            message = ReplicasFailed(self._broker_id, commands.broker_epoch, sayable, partitions)
            self._outbox.messages.append((("controller", commands.controller), message))
