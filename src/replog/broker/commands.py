"""The controller's commands at a broker: who may command, which notices are applied, what becomes of local copies."""

from __future__ import annotations

from collections.abc import Callable

from replog.broker.notices import Applied
from replog.errors import Code, LogDamaged, LogFull
from replog.messages import LeaderAndIsr, LeaderAndIsrAnswer, PartitionNotice, StopEntry, StopReplica, StopReplicaAnswer
from replog.model import PartitionId
from replog.ports import LogDirectory, LogStart

__all__ = ["TOPIC_DELETED", "Commands"]

TOPIC_DELETED = -2
"""Leader epoch of a StopEntry that comes from the deletion of the topic: no replica is newer (KIP-570)."""

_NEVER = (-1, -1, -1)
_STOPS_REMEMBERED = 10_000
_STOPS_KEPT_MS = 60_000
"""So long at least a stop is remembered: far longer than an older command can be on its way (a connection in doubt is given up)."""

Mark = tuple[int, int, int]
"""Controller epoch, broker epoch, and what was said before: orders commands by when they were made."""
PutAway = Callable[[list[PartitionId]], int]
"""Puts copies away, all at once; the code of what has gone wrong."""


class Commands:
    """Fences commands, and keeps count of notices.

    A heartbeat reports the highest notice such that it and all before it were applied: whatever got lost on the way is a
    gap, and the controller sends it again. A complete notice closes every gap before it.
    """

    def __init__(self, directory: LogDirectory, directory_failed: Callable[[str], None] = lambda why: None) -> None:
        """`directory_failed` is told why no copy here can take anything any more, if that is found out."""
        self._directory = directory
        self._directory_failed = directory_failed
        self.broker_epoch = -1
        self.controller_epoch = -1
        self.controller: int | None = None
        self._applied = Applied()
        self.unmade: dict[PartitionId, Mark] = {}
        """Copies that cannot be made because the directory has failed, and as of when each was asked for."""
        self.problem = ""
        """Why not."""
        self._stopped: dict[PartitionId, Mark] = {}
        """Copies taken away, and by which notice: an older command must not bring them back (P-69b)."""
        self._aging: dict[PartitionId, Mark] = {}
        """Those of them that are to be forgotten next."""
        self._age_ms = 0
        self._named: dict[PartitionId, Mark] = {}
        """The newest notice that named each copy: an older complete one proves nothing by leaving it out (P-62)."""
        self._floor = _NEVER
        """What is older is not applied: of the newest complete notice (a copy that an older one names, and this one did not, was not wanted
        then, or not spoken of), or of the newest stop that was forgotten."""

    @property
    def notice(self) -> int:
        """Highest notice applied without a gap; -1 before the first complete one of this controller."""
        return self._applied.highest

    @property
    def gaps(self) -> int:
        """How many gaps there are among the notices that were applied."""
        return len(self._applied.ahead)

    def fence(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> int:
        """Whether this controller may command this life of the broker; remembers the newest controller (KIP-380).

        A larger broker epoch is accepted: the broker may be the last to learn its own (KAFKA-9839). But a process that has
        never been registered obeys nobody: the registration that the command is about may be of an earlier process, with
        a disk that is no longer there.
        """
        if controller_epoch < self.controller_epoch:
            return Code.STALE_CONTROLLER_EPOCH
        if self.broker_epoch < 0 or broker_epoch < self.broker_epoch:
            return Code.STALE_BROKER_EPOCH
        if controller_epoch > self.controller_epoch:
            self.controller_epoch = controller_epoch
            self._applied = Applied()
        self.controller = controller_id
        return Code.NONE

    def registered(self, broker_epoch: int) -> None:
        """A new life: notices for the earlier one no longer count. Some for this one may have come already, and older ones may follow."""
        self.broker_epoch = broker_epoch
        self._applied = Applied()
        self._stopped, self._aging, self._named = (
            {identity: mark for identity, mark in marks.items() if mark[1] >= broker_epoch}
            for marks in (self._stopped, self._aging, self._named)
        )
        self.unmade.clear()  # its complete notice asks again for those that are still wanted

    def age(self, now_ms: int) -> None:
        """Forget stops that are old: nothing is left of a topic that is gone."""
        if now_ms < self._age_ms or not (self._stopped or self._aging):
            return
        for identity, mark in self._aging.items():
            if self._stopped.get(identity) == mark:
                self._forget_stop(identity)
        self._aging, self._age_ms = dict(self._stopped), now_ms + _STOPS_KEPT_MS

    def on_leader_and_isr(
        self,
        message: LeaderAndIsr,
        become: Callable[[PartitionNotice], int],
        refusal: Callable[[PartitionNotice], int] = lambda _: 0,
        stand_down: Callable[[PartitionNotice], None] = lambda _: None,
    ) -> LeaderAndIsrAnswer:
        """Apply a notice: logs that are missing are made first, all with one write, and so is another `flush` of logs that are here taken
        over by the directory, which answers for it after a power cut; then each partition takes its state. `refusal` says why one would
        not, 0 if it would. `stand_down` is told of a notice for a copy that is here and has no room for another `flush`: of an epoch that
        has ended it must not go on as the leader.

        Without room for those logs, or for what one has to do first, the others go on, and the notice does not count: it is to come
        again. A complete one counts all the same, because what is here can be served; the controller says the rest with another (L2).
        Nor does a notice count that was overtaken, for by what may not have been applied: it comes again, with what is true then.
        """
        answer = LeaderAndIsrAnswer(-1, self.broker_epoch, message.controller_epoch, message.notice, Code.NONE)
        answer.error = self.fence(message.controller_id, message.controller_epoch, message.broker_epoch)
        if answer.error:
            answer.controller_epoch = self.controller_epoch
            return answer
        mark = _mark(message)
        # An older notice may come later: it must bring back neither a copy that went, here or not, nor an older configuration.
        entries = [entry for entry in message.entries if self._named.get(entry.partition, mark) <= mark]
        entries = [entry for entry in entries if self._stopped.get(entry.partition, _NEVER) < mark]
        if mark < self._floor or len(entries) < len(message.entries):
            answer.error = Code.OPERATION_NOT_ATTEMPTED
        if mark < self._floor:
            return answer
        altered = self._create([entry for entry in entries if self._alters_flush(entry) and not refusal(entry)])
        failed = altered | self._create([entry for entry in entries if self._directory.get(entry.partition) is None])
        for entry in entries:
            why = failed.get(entry.partition, Code.NONE)
            self._named[entry.partition] = mark
            if why:
                answer.errors.append((entry.partition, why))
                if why == Code.LOG_DIRECTORY_FULL and entry.partition in altered:
                    stand_down(entry)
                if why == Code.STORAGE_ERROR:
                    self.unmade[entry.partition] = max(mark, self.unmade.get(entry.partition, mark))
                continue
            self.unmade.pop(entry.partition, None)
            self._stopped.pop(entry.partition, None)
            error = become(entry)
            if error and error not in (Code.FENCED_LEADER_EPOCH, Code.INVALID_UPDATE_VERSION):
                answer.errors.append((entry.partition, error))
        if message.complete:
            self._floor = mark
            named = {entry.partition for entry in message.entries}
            here = [identity for identity in self._directory.identities() if identity not in named]
            answer.strays = [identity for identity in here if self._named.get(identity, mark) <= mark]
            if not message.is_partial:
                for identity in [one for one in self.unmade if one not in named]:
                    self._wanted_no_more(identity, mark)
                self._named = {one: of for one, of in self._named.items() if of >= mark or self._directory.get(one) is not None}
                # A topic that is being deleted is left out without more to say of it: an earlier copy of this notice is as old.
                self._remember_stops(answer.strays, mark)
        if not answer.error and (message.complete or all(error != Code.LOG_DIRECTORY_FULL for _, error in answer.errors)):
            self._applied.note(message.notice, complete=message.complete)
        return answer

    def _alters_flush(self, entry: PartitionNotice) -> bool:
        """Whether a copy that is here is to be flushed before each answer from now on, or no longer."""
        log = self._directory.get(entry.partition)
        return log is not None and (log.config.flush == "ack") != (entry.config.flush == "ack")

    def _create(self, entries: list[PartitionNotice]) -> dict[PartitionId, int]:
        """Make logs, or give them another configuration; if that could not be done, why not, for each of them."""
        why: int = Code.NONE
        if entries:
            try:
                self._directory.create([LogStart(entry.partition, entry.topic, entry.config) for entry in entries])
            except LogFull:
                why = Code.LOG_DIRECTORY_FULL
            except LogDamaged as problem:
                self.problem = str(problem)
                self._directory_failed(self.problem)
                why = Code.STORAGE_ERROR
        return {entry.partition: why for entry in entries} if why else {}

    def _wanted_no_more(self, identity: PartitionId, mark: Mark) -> None:
        """By a command: unless a newer one has asked for this copy."""
        if self.unmade.get(identity, mark) <= mark:
            self.unmade.pop(identity, None)

    def on_stop_replica(
        self, message: StopReplica, stop: Callable[[StopEntry], int], put_away: PutAway = lambda identities: Code.NONE
    ) -> StopReplicaAnswer:
        """Stop copies, each only if the command is not older than the copy's leader epoch (KIP-570, P-69), and put away what may go."""
        answer = StopReplicaAnswer(-1, self.broker_epoch, message.controller_epoch, message.notice, Code.NONE)
        answer.error = self.fence(message.controller_id, message.controller_epoch, message.broker_epoch)
        if answer.error:
            answer.controller_epoch = self.controller_epoch
            return answer
        mark = _mark(message)
        going: list[PartitionId] = []
        for entry in message.entries:
            if self._named.get(entry.partition, mark) > mark:
                continue  # assigned again since: the copy that a later notice named stays (a move that was cancelled or turned back)
            error = stop(entry)
            if error:
                answer.errors.append((entry.partition, error))
            if error == Code.FENCED_LEADER_EPOCH:
                continue
            if entry.delete and self._directory.get(entry.partition) is not None:
                going.append(entry.partition)
            # What cannot be put away (a full disk) is served no longer all the same.
            self._named.pop(entry.partition, None)
            self._remember_stops([entry.partition], mark)
            self._wanted_no_more(entry.partition, mark)
        error = put_away(going) if going else Code.NONE
        if error:
            answer.errors += [(identity, error) for identity in going]
        self._applied.note(message.notice, complete=False)
        return answer

    def _remember_stops(self, identities: list[PartitionId], mark: Mark) -> None:
        for identity in identities:
            self._stopped[identity] = max(mark, self._stopped.pop(identity, mark))
        while len(self._stopped) > _STOPS_REMEMBERED:
            self._forget_stop(next(iter(self._stopped)))

    def _forget_stop(self, identity: PartitionId) -> None:
        """What is older than it must not bring that copy back, nor is it known by then which one."""
        self._floor = max(self._floor, self._stopped.pop(identity))


def _mark(message: LeaderAndIsr | StopReplica) -> Mark:
    """The number of a notice orders nothing: it is sent again under that with what is true then."""
    return message.controller_epoch, message.broker_epoch, message.as_of
