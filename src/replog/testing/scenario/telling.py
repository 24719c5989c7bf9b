"""What a spectator sees: roles, truncations, high watermarks of leaders, in-sync sets, proposals and refusals. Nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from replog.broker.broker import Broker
from replog.messages import AlterIsr, Fetched, LeaderAndIsrAnswer, ReplicasFailed, StopReplicaAnswer
from replog.model import PartitionId
from replog.partition.partition import Partition
from replog.testing.scenario.names import Names, code_name, letter, letters

__all__ = ["Telling", "shown"]


@frozen
class _Seen:
    """A copy as the spectator saw it last."""

    role: str = "idle"
    leader: int | None = None
    leader_epoch: int = -1
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0
    isr: tuple[int, ...] = ()
    failed: bool = False

    @classmethod
    def of(cls, partition: Partition) -> _Seen:
        leading = partition.leading
        return cls(
            partition.role,
            partition.leader,
            partition.leader_epoch,
            partition.log.start_offset,
            partition.log.end_offset,
            partition.high_watermark,
            () if leading is None else leading.isr.isr,
            partition.failed is not None,
        )


class Telling:
    """Compares what is with what was, and puts the difference into words."""

    def __init__(self, names: Names, say: Callable[[str], None]) -> None:
        self._names = names
        self._say = say
        self._seen: dict[tuple[str, PartitionId], _Seen] = {}
        self._proposed: dict[tuple[str, PartitionId], Any] = {}
        self.many = False
        """Whether more than one partition is on stage: then each line names its partition."""

    def name(self, place: str, identity: PartitionId) -> str:
        """Who speaks."""
        return f"{place} {self._names.text(identity)}" if self.many else place

    def forget(self, place: str) -> None:
        """The process is gone, and what was seen of it with it."""
        for seen in (self._seen, self._proposed):
            for key in [key for key in seen if key[0] == place]:
                del seen[key]

    def look(self, place: str, broker: Broker) -> None:
        """Tell what has changed at a broker."""
        for key in [key for key in self._seen if key[0] == place and key[1] not in broker.partitions]:
            self._say(f"{self.name(*key)} is stopped")
            del self._seen[key]
        for identity, partition in broker.partitions.items():
            key = (place, identity)
            now, was = _Seen.of(partition), self._seen.get(key)
            if was is None:
                high_watermark = 0 if now.role == "leader" else now.high_watermark
                was = _Seen(start_offset=now.start_offset, end_offset=now.end_offset, high_watermark=high_watermark)
            self._seen[key] = now
            if now != was:
                self._tell(key, was, now)

    def set_up(self, place: str, partition: Partition) -> None:
        """Take a copy as it is, without a word."""
        self._seen[place, partition.identity] = _Seen.of(partition)

    def _tell(self, key: tuple[str, PartitionId], was: _Seen, now: _Seen) -> None:
        who = self.name(*key)
        if now.failed and not was.failed:
            self._say(f"{who} has failed")
        elif (now.role, now.leader, now.leader_epoch) != (was.role, was.leader, was.leader_epoch):
            if now.role == "leader":
                self._say(f"{who} leads epoch {now.leader_epoch}")
            else:
                follows = "nobody" if now.leader is None else letter(now.leader)
                self._say(f"{who} follows {follows} in epoch {now.leader_epoch}")
        if now.start_offset > was.end_offset:
            self._say(f"{who} starts again at {now.start_offset}")
        elif now.end_offset < was.end_offset:
            self._say(f"{who} truncates to {now.end_offset}")
        if now.role == "leader":
            if was.role == "leader" and was.isr != now.isr:
                self._say(f"{who}: ISR {letters(now.isr)}")
            if now.high_watermark > was.high_watermark:
                self._say(f"{who}: HW {now.high_watermark}")
        if now.high_watermark < was.high_watermark and now.role == was.role == "leader":
            self._say(f"!! {who}: HW fell from {was.high_watermark} to {now.high_watermark}")

    # ------------------------------------------------------------------------------------------------------- messages

    def sent(self, source: str, target: str, message: Any) -> None:
        """A message that says something by itself."""
        match message:
            case AlterIsr():
                self._proposal(source, message)
            case Fetched() if target != "client":
                if message.error:
                    self._say(f"{source} to {target}: {code_name(message.error)}")
                for entry in message.entries:
                    if entry.error:
                        self._say(f"{self.name(source, entry.partition)} to {target}: {code_name(entry.error)}")
                    elif entry.diverging_epoch >= 0:
                        parting = f"the logs part at epoch {entry.diverging_epoch}, offset {entry.diverging_end}"
                        self._say(f"{self.name(source, entry.partition)} to {target}: {parting}")
            case LeaderAndIsrAnswer() | StopReplicaAnswer():
                if message.error:
                    self._say(f"{source} refuses: {code_name(message.error)}")
                for identity, error in message.errors:
                    self._say(f"{self.name(source, identity)} refuses: {code_name(error)}")
                for identity in getattr(message, "strays", ()):
                    self._say(f"{source} keeps {self._names.text(identity)}, which was not named")
            case ReplicasFailed():
                failed = ", ".join(map(self._names.text, message.partitions)) or "its whole directory"
                self._say(f"{source} reports a failure: {failed}")
            case _:
                pass

    def _proposal(self, source: str, message: AlterIsr) -> None:
        for entry in message.entries:
            key = (source, entry.partition)
            isr = letters(b for b, _ in entry.isr)
            again = " again" if self._proposed.get(key) == entry else ""
            self._proposed[key] = entry
            recovering = ", recovering" if entry.recovering else ""
            self._say(f"{self.name(*key)} proposes{again} ISR {isr}{recovering} (epoch {entry.leader_epoch}, pe {entry.partition_epoch})")


def shown(name: str, partition: Partition) -> str:
    """A copy as one line: `A[m0.1 m1.2] HW 1 leader epoch 2`."""
    log = partition.log
    start = f"@{log.start_offset}" if log.start_offset else ""
    records = " ".join(f"{(r.value or b'-').decode()}.{r.leader_epoch}" for r in log.records())  # type: ignore[attr-defined]
    flushed = f" flushed {log.flushed_end}" if partition.config.flush == "ack" else ""
    role = {"leader": "leader", "idle": "idle"}.get(partition.role, f"follower of {letter(partition.leader)}")
    role = "failed" if partition.failed else role
    epoch = f" epoch {partition.leader_epoch}" if partition.leader_epoch >= 0 and not partition.failed else ""
    return f"{name}[{records}]{start} HW {partition.high_watermark}{flushed} {role}{epoch}"
