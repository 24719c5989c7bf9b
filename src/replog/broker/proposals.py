"""ISR proposals: at most one in flight per partition, batched over partitions, repeated unchanged until answered (KIP-497).

A refusal lets the leader count without those it wished for, so it must never come true after all. What makes it final: each
wish has a number, and a controller that has refused a number refuses it for good; each request names the controller epoch it
is meant for, and no other answers it; and a refusal counts only if it is of the newest controller that was asked.
"""

from __future__ import annotations

from attrs import define

from replog.config import BrokerConfig
from replog.messages import AlterIsr, AlterIsrAnswer, AlterIsrEntry
from replog.model import Address, PartitionId, numbers_from
from replog.partition.isr import IsrChange
from replog.partition.leading import NOT_APPLIED
from replog.partition.partition import Partition
from replog.ports import Outbox

__all__ = ["Proposals"]


@define
class _Pending:
    partition: Partition
    proposal: IsrChange
    entry: AlterIsrEntry
    sent_ms: int
    asked: int = -1
    """Epoch of the newest controller that it was sent to."""


@define
class _Request:
    controller_epoch: int
    proposed: dict[PartitionId, IsrChange]


class Proposals:
    """The wishes of this broker's leaders."""

    def __init__(self, broker_id: int, outbox: Outbox, config: BrokerConfig) -> None:
        self._broker_id = broker_id
        self._outbox = outbox
        self._config = config
        self.broker_epoch = -1
        self.controller: Address | None = None
        """Where proposals go; None while no controller is known."""
        self.controller_epoch = -1
        self._wanted: dict[PartitionId, Partition] = {}
        self._pending: dict[PartitionId, _Pending] = {}
        self._requests: dict[int, _Request] = {}
        """What each request under way proposed: an answer decides only that."""
        self._number = 0
        self._wishes = 0
        self.due_ms: int | None = None
        """When `send_due` has something to do; 0: now."""

    def registered(self, broker_epoch: int) -> None:
        """A new life at the store: proposals carry its epoch from now on."""
        self.broker_epoch = broker_epoch
        self._number = numbers_from(broker_epoch)  # an answer to an earlier life's request is none to one of this life
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
        self._wishes += 1
        epochs = (partition.leader_epoch, partition.partition_epoch)
        entry = AlterIsrEntry(partition.identity, *epochs, isr, recovering, self._wishes)
        leading.propose(change)
        # Overdue from the start: it goes out below, or as soon as a controller is known.
        self._pending[partition.identity] = _Pending(partition, change, entry, now_ms - self._config.proposal_timeout_ms)

    def _send(self, entries: list[tuple[AlterIsrEntry, _Pending]], now_ms: int) -> None:
        if self.controller is None:
            return  # overdue as soon as one is known
        self._number += 1
        self._requests[self._number] = _Request(self.controller_epoch, {e.partition: p.proposal for e, p in entries})
        for _, pending in entries:
            pending.sent_ms = now_ms
            pending.asked = self.controller_epoch
        while len(self._requests) > 1_000:  # answers that old are of no use: the proposals were sent again since
            del self._requests[next(iter(self._requests))]
        wishes = [entry for entry, _ in entries]
        message = AlterIsr(self._number, self._broker_id, self.broker_epoch, wishes, self.controller_epoch)
        self._outbox.messages.append((self.controller, message))

    def answered(self, answer: AlterIsrAnswer, now_ms: int) -> list[Partition]:
        """Take an answer; returns the partitions whose ISR may have changed.

        An answer to the whole request (not the controller, stale broker epoch) decides nothing: the same proposals go
        out again later, to whoever is the controller then.
        """
        request = self._requests.pop(answer.request, None)
        if request is None or answer.error:
            return []
        changed: list[Partition] = []
        for result in answer.entries:
            proposal = request.proposed.get(result.partition)
            pending = self._pending.get(result.partition)
            if proposal is None or pending is None or pending.proposal is not proposal:
                continue
            if result.error in NOT_APPLIED and request.controller_epoch < pending.asked:
                continue  # a later controller was asked since, and may have granted it
            if pending.partition.answered(proposal, result, now_ms):
                changed.append(pending.partition)
            if not self._is_current(pending):
                del self._pending[result.partition]
        return changed

    def _is_current(self, pending: _Pending) -> bool:
        leading = pending.partition.leading
        return leading is not None and leading.isr is pending.proposal

    def controller_changed(self, controller: Address | None, controller_epoch: int) -> None:
        """Proposals under way go to the new controller at once, also to one of another epoch on the same broker."""
        if (controller, controller_epoch) != (self.controller, self.controller_epoch):
            self.controller, self.controller_epoch = controller, controller_epoch
            for pending in self._pending.values():
                pending.sent_ms -= self._config.proposal_timeout_ms
            self.due_ms = 0
