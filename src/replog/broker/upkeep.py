"""What a broker does by the clock, and for which partitions: flushes, lag checks, checkpoints, retention, deletion.

Every set here holds only partitions with something to do, so that an idle one costs nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Final

from replog.broker.due import Due
from replog.config import BrokerConfig
from replog.errors import LogCorrupt, LogDamaged, LogFull
from replog.messages import FlushAll
from replog.model import Address, BrokerInfo, PartitionId
from replog.partition.partition import Partition
from replog.ports import FlushToken, Log, LogDirectory

__all__ = ["Upkeep"]

_SWEEP_MS: Final = 100
"""How often waiting fetches and appends are looked at for having waited long enough."""
_AGAIN_MS: Final = 1_000
"""Retention that had to wait goes on so much later; so does a flush."""
_RETAINED_MIN: Final = 2
"""Of so many partitions segments are removed in one run: each waits for a disk. The next ones follow in the next turn, when others have
been heard."""
_RETAINED_MAX: Final = 20
"""Of so many where nobody has called for a while: a broker that is embedded without a thread has its turns when it is called, ..."""
_RETAIN_MS: Final = 1_000
"""... so it may have one for each time that has passed since. What the last run removed may have taken that time, and nobody here knows
when it ended: each of its partitions counts for one. Else a slow disk would have ever longer runs, each because of the one before it."""
_FLUSHES_MAX: Final = 32
"""So many flushes are under way at most when another log is flushed before a clean stop, ..."""
_SHARE_MAX: Final = 1 / 8
"""... and they keep this part of the files open that may be open at all, or less; a log has all open that it has to flush."""
_PURGES_MAX: Final = 100
"""So many copies are deleted in one run; the next ones a sweep later: files of any size may be behind each."""


class Upkeep:
    """The timers of one broker."""

    def __init__(self, directory: LogDirectory, partitions: Mapping[PartitionId, Partition], config: BrokerConfig) -> None:
        self._directory = directory
        self._partitions = partitions
        self._config = config
        self.wall_ms = self.told_ms = 0
        self.unflushed: dict[PartitionId, Partition] = {}
        """Something about them may have to be flushed: looked at when the poll ends, once."""
        self._flushing: dict[PartitionId, tuple[Log, float]] = {}
        """Logs with a flush under way, and its share of open files; kept until it has run, whatever becomes of the copy."""
        self._flush_next: dict[PartitionId, Partition] = {}
        """Those of them about which there was news meanwhile."""
        self.flush_due = Due()
        """To be flushed by time: under flush "interval", or because a flush was not done for want of descriptors. `flushes` has
        something to do when this is due or something is unflushed, which a broker looks at in each turn."""
        self._last: OrderedDict[PartitionId, Partition] = OrderedDict()
        """To be flushed before a clean stop, and not asked for yet."""
        self._last_asked: set[PartitionId] = set()
        """Those of them that are asked for, and have not run."""
        self._record_ms = 0
        """When flushes that logs have had since they were altered may be recorded next."""
        self._unequal: dict[PartitionId, Partition] = {}
        """Led here, with a follower that is not at the end: only these can lag."""
        self._outsiders: dict[PartitionId, Partition] = {}
        """Led here, with an assigned replica outside the ISR."""
        self._unsaved: dict[PartitionId, Partition] = {}
        self.damaged: list[tuple[Partition, str]] = []
        """Copies that turned out to have failed during retention or flushing, and how: for the broker to take."""
        self.repeated: list[Partition] = []
        """Logs led here that retention has made longer (`Partition.retain`): for the broker to make known."""
        self._moved: dict[PartitionId, Partition] = {}
        """Their start has moved, and `run` has not said so yet."""
        self._let_in_as = -1
        """The last broker epoch under which this life was let in."""
        self._is_unnoted = False
        """Whether the directory has not noted that, for want of room."""
        self._retaining: OrderedDict[PartitionId, Partition] = OrderedDict()
        """What retention has yet to look at, or to go on with, since it was due last. The first of a dict is found ever more slowly once
        others have been taken from its front."""
        self._ran_ms = 0
        """When `run` was called last, ..."""
        self._retained = 0
        """... and of how many partitions it removed segments."""
        self._purging: list[PartitionId] = []
        """Copies to be deleted, as found at a checkpoint: a slice of them in each run."""
        self._ahead: dict[PartitionId, int] = {}
        """Copies that went there at a time that has yet to come, as the clock says now, and when that was first seen."""
        self._is_stale = False
        """Whether the last checkpoint may speak of copies that were deleted since."""
        self.lag_check_ms = 0
        self.sweep_ms = 0
        """When what waits is looked at next: `run` is due between two sweeps as well, for retention that goes on."""
        self.next_ms = 0
        self._heartbeat_ms = 0
        self._checkpoint_ms: int | None = None
        self._retention_ms: int | None = None

    # ----------------------------------------------------------------------------------------------------------- news

    def told(self, now_ms: int, wall_ms: int) -> None:
        """What both clocks say, at the end of a poll."""
        self.told_ms, self.wall_ms = now_ms, wall_ms

    def wall_at(self, now_ms: int) -> int:
        """The wall clock within a poll: the last one may have been hours ago, if nobody has called an embedded broker meanwhile."""
        return self.wall_ms + now_ms - self.told_ms

    def appended(self, partition: Partition) -> None:
        """The log has grown."""
        if partition.config.flush != "os":
            self.unflushed[partition.identity] = partition
        if partition.leading is not None:
            self._unequal[partition.identity] = partition

    def recovered(self, partition: Partition) -> None:
        """What the log holds may never have been flushed, although nothing is appended now: the tail of an earlier life."""
        if partition.config.flush != "os" and partition.log.flushed_end < partition.log.end_offset:
            self.unflushed[partition.identity] = partition

    def committed(self, partition: Partition) -> None:
        """The high watermark has moved: worth a checkpoint."""
        self._unsaved[partition.identity] = partition

    def lowered(self, partition: Partition) -> None:
        """Records were cut: no checkpoint from now on may say a high watermark of theirs, whoever writes it."""
        marks, identity = self._directory.high_watermarks, partition.identity
        marks[identity] = min(partition.high_watermark, marks.get(identity, partition.high_watermark))

    def leads(self, partition: Partition) -> None:
        """Led here now, or with another ISR: followers have yet to show up."""
        self._unequal[partition.identity] = partition
        leading = partition.leading
        if leading is not None and leading.candidates:
            self._outsiders[partition.identity] = partition
        else:
            self._outsiders.pop(partition.identity, None)

    def forget(self, identity: PartitionId) -> None:
        """No longer served here."""
        for kept in (self.unflushed, self._flush_next, self._unequal, self._outsiders, self._unsaved, self._moved, self._retaining):
            kept.pop(identity, None)
        self._last.pop(identity, None)
        self._flush_more()  # the next turn may have been due for this one
        self.flush_due.drop(identity)

    def with_outsiders(self) -> list[Partition]:
        """Led here, with an assigned replica outside the ISR."""
        for identity in [i for i, p in self._outsiders.items() if p.leading is None]:
            del self._outsiders[identity]
        return list(self._outsiders.values())

    # -------------------------------------------------------------------------------------------------------- flushing

    def flushes(self, now_ms: int) -> list[FlushToken]:
        """Tokens for what should become durable now: one flush serves every append that waited for it."""
        tokens: list[FlushToken] = []
        news, self.unflushed = self.unflushed, {}
        for identity, partition in news.items():
            if identity in self._flushing:
                self._flush_next[identity] = partition
            elif partition.config.flush == "interval":
                self.flush_due.put(partition, now_ms + partition.config.flush_interval_ms)
            else:
                self._flush(partition, tokens)
        for partition in self.flush_due.take(now_ms):
            self._flush(partition, tokens)
        while self._last and self._may_flush_more():
            identity, partition = self._last.popitem(last=False)
            if identity not in self._flushing:
                self._flush(partition, tokens)
            if identity in self._flushing:
                self._last_asked.add(identity)
        return tokens

    def _may_flush_more(self) -> bool:
        return len(self._flushing) < _FLUSHES_MAX and sum(share for _, share in self._flushing.values()) < _SHARE_MAX

    def on_flush_all(self, sender: Address, message: FlushAll, now_ms: int) -> None:
        """The driver is about to stop this broker cleanly, and to wait for what this begins: every log that is served here is flushed,
        unless its disk has it whole, whatever its topic says of flushes, many at once. To be repeated for what is appended meanwhile."""
        for identity, partition in self._partitions.items():
            if partition.log.flushed_end < partition.log.end_offset:
                self._last[identity] = partition
        self._flush_more()

    def _flush_more(self) -> None:
        """What is to be flushed before a clean stop goes on with the next turn."""
        for identity, partition in self._last.items():
            self.unflushed[identity] = partition
            return

    @property
    def left_to_flush(self) -> int:
        """Logs of which a flush is still to come since the last FlushAll."""
        return len(self._last) + len(self._last_asked)

    def _flush(self, partition: Partition, tokens: list[FlushToken]) -> None:
        self.flush_due.drop(partition.identity)
        try:
            token = partition.log.flush()
        except LogDamaged as problem:
            self.damaged.append((partition, str(problem)))
            return
        if token is not None:
            self._flushing[partition.identity] = partition.log, token.share
            tokens.append(token)

    def flush_later(self, partition: Partition, now_ms: int) -> None:
        """A flush could not be done for now, and nothing was lost."""
        self.flush_due.put(partition, now_ms + _AGAIN_MS)

    def flush_done(self, token: FlushToken) -> Log | None:
        """The flush has run: what was appended meanwhile may be flushed next. Returns the log that it was of."""
        partition = self._flush_next.pop(token.identity, None)
        if partition is not None:
            self.unflushed[token.identity] = partition
        self._last_asked.discard(token.identity)
        self._flush_more()
        log, _ = self._flushing.pop(token.identity, (None, 0.0))
        return log

    # ---------------------------------------------------------------------------------------------------------- timers

    def lagging(self, now_ms: int) -> list[Partition]:
        """Every half of the lag limit: partitions whose followers may have lagged, or whose outsiders may join (S10)."""
        self.lag_check_ms = now_ms + max(1, self._config.replica_lag_ms_max // 2)
        for identity, partition in list(self._unequal.items()):
            if partition.leading is None or partition.leading.followers_equal:
                del self._unequal[identity]
        return [*self._unequal.values(), *self.with_outsiders()]

    def heartbeat_due(self, now_ms: int) -> bool:
        """Whether a heartbeat is due; the next one is counted from now."""
        if now_ms < self._heartbeat_ms:
            return False
        self._heartbeat_ms = now_ms + self._config.heartbeat_ms
        return True

    def run(self, now_ms: int) -> list[Partition]:
        """Files that are not needed any more; retention, deletion and checkpoints that are due: first what makes room. Returns partitions
        whose start has moved.

        Raises LogFull when everything that can be done is done (the rest is tried again in the next interval; the next call
        returns what has moved), or LogDamaged (the directory is broken).
        """
        self._directory.close_unused()
        config, goes_on = self._config, bool(self._retaining)
        sweeps = now_ms >= self.sweep_ms
        if sweeps:
            self.sweep_ms = now_ms + min(_SWEEP_MS, config.heartbeat_ms, max(1, config.replica_lag_ms_max // 2))
        self.next_ms = self.sweep_ms
        if self._checkpoint_ms is None or self._retention_ms is None:
            self._checkpoint_ms = now_ms + config.checkpoint_interval_ms
            self._retention_ms = now_ms + config.retention_check_ms
        if now_ms >= self._retention_ms and not self._retaining:
            self._retention_ms = now_ms + config.retention_check_ms
            self._retaining.update((identity, one) for identity, one in self._partitions.items() if _is_retained(one))
        work: list[Callable[[], None]] = []
        if sweeps and now_ms >= self._record_ms:
            work.append(self._record_flushes)
        is_checkpoint = now_ms >= self._checkpoint_ms
        if is_checkpoint and not self._purging:
            self._purging = self._purgeable()
        if self._purging and not goes_on:
            still = set(self._purgeable())  # one may have come back, and been put away again, since the checkpoint
            work.append(partial(self._directory.purge_each, [one for one in self._purging[:_PURGES_MAX] if one in still]))
            self._is_stale = True
            del self._purging[:_PURGES_MAX]  # what there is no room for comes again: others may make some
        if is_checkpoint:
            self._checkpoint_ms = now_ms + config.checkpoint_interval_ms
            work += (self._note_let_in, self.save)
        full: LogFull | None = None
        for step in chain(self._retentions(now_ms), work):
            try:
                step()
            except LogFull as problem:  # of one log, or of one file: the others go on
                full = full or problem
        if full is not None:
            raise full
        moved, self._moved = list(self._moved.values()), {}
        return moved

    def retain_soon(self) -> None:
        """A disk is full: retention is due with the next timers."""
        if self._retention_ms is not None:
            self._retention_ms = min(self._retention_ms, self.next_ms)

    def _record_flushes(self) -> None:
        try:
            self._directory.record_flushes()
        except LogFull:
            self._record_ms = self._checkpoint_ms or 0
            raise

    def look_at(self, itself: BrokerInfo | None, broker_epoch: int) -> None:
        """Note, once, that a controller has let this life in. Only then has it dealt with what was lost here, and stored that: a restart
        before this, or without room, reports it again. Raises LogDamaged, or LogFull: then it is noted at the next checkpoint."""
        is_in = itself is not None and not itself.fenced and itself.broker_epoch == broker_epoch
        if is_in and broker_epoch != self._let_in_as:
            self._let_in_as, self._is_unnoted = broker_epoch, True
            self._note_let_in()

    def _note_let_in(self) -> None:
        if self._is_unnoted:
            self._directory.registered(self._let_in_as)
            self._is_unnoted = False

    def save(self) -> None:
        """Write the high watermarks that have moved; advisory at the next start (P-50). Raises LogFull or LogDamaged."""
        if self._unsaved or self._is_stale:
            for identity, partition in self._unsaved.items():
                self._directory.high_watermarks[identity] = partition.high_watermark
            self._directory.checkpoint()
            self._unsaved.clear()
            self._is_stale = False

    def _purgeable(self) -> list[PartitionId]:
        """Copies that were in quarantine for long enough: by the wall clock, or, if that was ahead then, since this was seen."""
        delay_ms, kept = self._config.deletion_delay_ms, self._directory.quarantined()
        ahead = (one for one, since_ms in kept.items() if since_ms > self.wall_ms + delay_ms)
        self._ahead = {one: self._ahead.get(one, self.told_ms) for one in ahead}
        due = [one for one, seen_ms in self._ahead.items() if self.told_ms - seen_ms > delay_ms]
        return [*due, *(one for one, since_ms in kept.items() if since_ms <= self.wall_ms - delay_ms)]

    def _retentions(self, now_ms: int) -> Iterator[Callable[[], None]]:
        """Retention of those that have yet to have it, until so many took time; with the rest `run` is due a moment later."""
        left = min(max((now_ms - self._ran_ms) // _RETAIN_MS - self._retained, _RETAINED_MIN), _RETAINED_MAX)
        self._ran_ms, self._retained = now_ms, 0
        while self._retaining and self._retained < left:
            identity, partition = self._retaining.popitem(last=False)
            log, start, goes_on = partition.log, partition.log.start_offset, partition.log.is_trimming
            yield partial(self._retain, partition, now_ms)
            self._retained += goes_on or log.start_offset != start
            if log.is_trimming and not partition.failed:
                self._retaining[identity] = partition
        if self._retaining:
            self.next_ms = now_ms + 1

    def _retain(self, partition: Partition, now_ms: int) -> None:
        """Apply retention; where everything is kept, forget those who were silent for too long: they are forgotten everywhere."""
        if partition.failed:
            return
        log = partition.log
        start, end = log.start_offset, log.end_offset
        try:
            if not _has_limits(partition):
                log.retained_start(self.wall_ms, partition.high_watermark)
                if log.is_trimming:
                    log.trim_to(start)
            elif not partition.retain(self.wall_ms, now_ms):
                self._retention_ms = min(self._retention_ms or now_ms, now_ms + _AGAIN_MS)
        except (LogDamaged, LogCorrupt) as problem:
            self.damaged.append((partition, str(problem)))
            return
        finally:
            if log.end_offset != end:
                self.repeated.append(partition)
            if log.start_offset != start:
                self._moved[partition.identity] = partition

    def deadline_ms(self) -> int:
        """When a timer is due next."""
        return min(self.next_ms, self.flush_due.next_ms)


def _is_retained(partition: Partition) -> bool:
    """Whether time may bring about something there."""
    return _has_limits(partition) or bool(len(partition.log.producers)) or partition.log.is_trimming


def _has_limits(partition: Partition) -> bool:
    """Whether its topic keeps records for a time only, or so many bytes of them."""
    return partition.config.retention_ms is not None or partition.config.retention_bytes is not None
