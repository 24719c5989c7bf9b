"""ISR proposals: at most one in flight per partition, batched over partitions, repeated unchanged until answered (KIP-497)."""

from __future__ import annotations

from attrs import define

from replog.config import BrokerConfig
from replog.messages import AlterIsr, AlterIsrAnswer, AlterIsrEntry
from replog.model import Address, PartitionId
from replog.partition.isr import IsrChange
from replog.partition.partition import Partition
from replog.ports import Outbox

__all__ = ["Proposals"]


@define
class _Pending:
    partition: Partition
    proposal: IsrChange
    entry: AlterIsrEntry
    sent_ms: int


class Proposals:
    """The wishes of this broker's leaders."""

    def __init__(self, broker_id: int, outbox: Outbox, config: BrokerConfig) -> None:
        self._broker_id = broker_id
        self._outbox = outbox
        self._config = config
        self.broker_epoch = -1
        self.controller: Address | None = None
        """Where proposals go; None while no controller is known."""
        self._wanted: dict[PartitionId, Partition] = {}
        self._pending: dict[PartitionId, _Pending] = {}
        self._requests: dict[int, dict[PartitionId, IsrChange]] = {}
        """What each request under way proposed: an answer decides only that."""
        self._number = 0
        self.due_ms: int | None = None
        """When `send_due` has something to do; 0: now."""

    def registered(self, broker_epoch: int) -> None:
        """A new life at the store: proposals carry its epoch from now on."""
        self.broker_epoch = broker_epoch
        self.due_ms = 0

    def consider(self, partition: Partition) -> None:
        """This partition may want another ISR: look at the end of the poll."""
        self._wanted[partition.identity] = partition
        self.due_ms = 0

    def send_due(self, now_ms: int) -> None:
        """Send new proposals, and again, unchanged, those whose answer is overdue."""
        entries: list[tuple[AlterIsrEntry, _Pending]] = []
        if self._wanted and self.broker_epoch >= 0:
            wanted, self._wanted = self._wanted, {}
            for partition in wanted.values():
                self._propose(partition, now_ms)
        if self._pending and self.controller is not None:
            overdue = now_ms - self._config.proposal_timeout_ms
            for identity, pending in list(self._pending.items()):
                if not self._is_current(pending):
                    del self._pending[identity]
                elif pending.sent_ms <= overdue:
                    entries.append((pending.entry, pending))
        limit = self._config.slice_partitions_max
        for start in range(0, len(entries), limit):
            self._send(entries[start : start + limit], now_ms)
        self.due_ms = None
        if self.controller is not None and self._pending:
            self.due_ms = min(p.sent_ms for p in self._pending.values()) + self._config.proposal_timeout_ms

    def _propose(self, partition: Partition, now_ms: int) -> None:
        leading = partition.leading
        change = leading.change(now_ms) if leading is not None else None
        if leading is None or change is None:
            return
        isr = [(b, self.broker_epoch if b == self._broker_id else leading.replicas[b].broker_epoch) for b in change.proposed]
        recovering = leading.recovering and not change.recovered
        entry = AlterIsrEntry(partition.identity, partition.leader_epoch, partition.partition_epoch, isr, recovering)
        leading.propose(change)
        # Overdue from the start: it goes out below, or as soon as a controller is known.
        self._pending[partition.identity] = _Pending(partition, change, entry, now_ms - self._config.proposal_timeout_ms)

    def _send(self, entries: list[tuple[AlterIsrEntry, _Pending]], now_ms: int) -> None:
        if self.controller is None:
            return  # overdue as soon as one is known
        self._number += 1
        proposed = self._requests[self._number] = {}
        for entry, pending in entries:
            proposed[entry.partition] = pending.proposal
            pending.sent_ms = now_ms
        while len(self._requests) > 1_000:  # answers that old are of no use: the proposals were sent again since
            del self._requests[next(iter(self._requests))]
        message = AlterIsr(self._number, self._broker_id, self.broker_epoch, [entry for entry, _ in entries])
        self._outbox.messages.append((self.controller, message))

    def answered(self, answer: AlterIsrAnswer, now_ms: int) -> list[Partition]:
        """Take an answer; returns the partitions whose ISR may have changed.

        An answer to the whole request (not the controller, stale broker epoch) decides nothing: the same proposals go
        out again later, to whoever is the controller then.
        """
        proposed = self._requests.pop(answer.request, None)
        if proposed is None or answer.error:
            return []
        changed: list[Partition] = []
        for result in answer.entries:
            proposal = proposed.get(result.partition)
            pending = self._pending.get(result.partition)
            if proposal is None or pending is None or pending.proposal is not proposal:
                continue
            if pending.partition.answered(proposal, result, now_ms):
                changed.append(pending.partition)
            if not self._is_current(pending):
                del self._pending[result.partition]
        return changed

    def _is_current(self, pending: _Pending) -> bool:
        leading = pending.partition.leading
        return leading is not None and leading.isr is pending.proposal

    def controller_changed(self, controller: Address | None) -> None:
        """Proposals under way go to the new controller at once."""
        if controller != self.controller:
            self.controller = controller
            for pending in self._pending.values():
                pending.sent_ms -= self._config.proposal_timeout_ms
            self.due_ms = 0
