"""Fetches as a follower sends them: two incremental sessions per leader, for the tail and for catching up (KIP-227).

A follower's next fetch offset is its acknowledgement, so the tail must never wait behind a lagging partition's
megabytes: a partition whose answer did not reach the leader's end moves to the catch-up session, and back once it has.
"""

from __future__ import annotations

from attrs import define, field

from replog.broker.throttle import Throttle
from replog.config import BrokerConfig
from replog.errors import Code
from replog.messages import Fetch, Fetched, FetchedEntry, FetchEntry
from replog.model import PartitionId
from replog.partition.following import Followed
from replog.partition.partition import Partition
from replog.ports import Ids, Outbox

__all__ = ["Fetcher", "Fetching"]


@define(eq=False)
class Fetcher:
    """One session with one leader."""

    leader: int
    catch_up: bool
    session: int = 0
    session_epoch: int = 0
    """Of the next fetch; 0 opens a session."""
    request: int | None = None
    """The fetch under way; None when there is none."""
    unanswered: dict[int, int] = field(factory=dict)
    """Fetches whose answer has not come, and when (ms) each was sent, oldest first: those replaced meanwhile are answered too."""
    partitions: dict[PartitionId, Partition] = field(factory=dict)
    changed: dict[PartitionId, None] = field(factory=dict)
    """To be named in the next fetch: new, moved, or of a new epoch."""
    forgotten: dict[PartitionId, None] = field(factory=dict)
    resume_ms: int = 0
    failures: int = 0

    def restart(self) -> None:
        """The session is void: the next fetch opens one and names everything."""
        self.session = 0
        self.session_epoch = 0
        self.request = None
        self.unanswered.clear()
        self.forgotten.clear()
        self.changed = dict.fromkeys(self.partitions)


class Fetching:
    """What this broker follows, and from whom."""

    def __init__(self, broker_id: int, outbox: Outbox, config: BrokerConfig, ids: Ids) -> None:
        self._broker_id = broker_id
        self._outbox = outbox
        self._config = config
        self._ids = ids
        self._throttle = Throttle(broker_id, config.reassignment_bytes_per_s)
        self.broker_epoch = -1
        self._fetchers: dict[tuple[int, bool], Fetcher] = {}
        self._where: dict[PartitionId, Fetcher] = {}
        self._delayed: dict[PartitionId, int] = {}
        """Partitions that asked in vain, and when (ms) they may ask again."""
        self._attempts: dict[PartitionId, int] = {}
        self._asked: dict[PartitionId, int] = {}
        """The fetch that named a partition last: whatever answers an earlier one is about a log that may have been cut since."""
        self._requests = 0
        self.due_ms: int | None = None
        """When `send_due` has something to do even if nothing arrives; 0: now."""

    # ----------------------------------------------------------------------------------------------------- who follows

    def follow(self, partition: Partition) -> None:
        """Fetch this partition from its leader from now on; every new epoch asks anew, also under the same leader (KAFKA-7164)."""
        identity = partition.identity
        following = partition.following
        leader = following.leader if following is not None else None
        fetcher = self._where.get(identity)
        if fetcher is not None and fetcher.leader != leader:
            self._leave(identity)
            fetcher = None
        self._delayed.pop(identity, None)
        self._attempts.pop(identity, None)
        if leader is None:
            return
        if fetcher is None:
            fetcher = self._join(partition, leader, catch_up=False)
        fetcher.changed[identity] = None
        self.due_ms = 0

    def drop(self, identity: PartitionId) -> None:
        """Stop fetching this partition. Under way answers are dropped by its epoch and offset."""
        if identity in self._where:
            self._leave(identity)
            self.due_ms = 0
        self._delayed.pop(identity, None)
        self._attempts.pop(identity, None)
        self._asked.pop(identity, None)

    def _join(self, partition: Partition, leader: int, *, catch_up: bool) -> Fetcher:
        fetcher = self._fetchers.get((leader, catch_up))
        if fetcher is None:
            fetcher = self._fetchers[leader, catch_up] = Fetcher(leader, catch_up)
        fetcher.partitions[partition.identity] = partition
        fetcher.forgotten.pop(partition.identity, None)
        self._where[partition.identity] = fetcher
        return fetcher

    def _leave(self, identity: PartitionId) -> None:
        fetcher = self._where.pop(identity)
        del fetcher.partitions[identity]
        fetcher.changed.pop(identity, None)
        if fetcher.session_epoch > 0 or fetcher.request is not None:
            fetcher.forgotten[identity] = None
        if not fetcher.partitions:
            del self._fetchers[fetcher.leader, fetcher.catch_up]
            if fetcher.session_epoch > 0:
                self._requests += 1
                close = Fetch(self._requests, self._broker_id, self.broker_epoch, fetcher.session, -1, 0, 0, 0, [], [], fetcher.catch_up)
                self._outbox.messages.append((fetcher.leader, close))

    def registered(self, broker_epoch: int) -> None:
        """A new life at the store: sessions of the old one are void."""
        self.broker_epoch = broker_epoch
        for fetcher in self._fetchers.values():
            fetcher.restart()
        self.due_ms = 0

    # --------------------------------------------------------------------------------------------------------- sending

    def send_due(self, now_ms: int) -> None:
        """Send what may be sent: one fetch under way per session, replaced only when there is more to name."""
        if self._delayed:
            for identity in [i for i, at in self._delayed.items() if at <= now_ms]:
                del self._delayed[identity]
                self._where[identity].changed[identity] = None
        if self.broker_epoch < 0:
            self.due_ms = None
            return
        due: int | None = min(self._delayed.values()) if self._delayed else None
        for fetcher in self._fetchers.values():
            if fetcher.unanswered and now_ms - next(iter(fetcher.unanswered.values())) >= self._config.fetch_timeout_ms:
                self._lost(fetcher, now_ms)
            if fetcher.session_epoch == 0 and fetcher.request is None and not fetcher.changed:
                continue  # all that it is for pauses: opened by a fetch that names nothing it would wait at the leader for that one's time
            # What opens a session names everything in it and is answered at once: it is not replaced, or its names would be lost.
            more = fetcher.session_epoch > 0 and (fetcher.changed or fetcher.forgotten)
            if (fetcher.request is None or more) and now_ms >= fetcher.resume_ms:
                self._send(fetcher, now_ms)
            next_ms = fetcher.resume_ms
            if fetcher.unanswered:
                next_ms = next(iter(fetcher.unanswered.values())) + self._config.fetch_timeout_ms
            if due is None or next_ms < due:
                due = next_ms
        self.due_ms = due

    def _send(self, fetcher: Fetcher, now_ms: int) -> None:
        config = self._config
        entries: list[FetchEntry] = []
        for identity in tuple(fetcher.changed)[: config.slice_partitions_max]:
            del fetcher.changed[identity]
            partition = fetcher.partitions[identity]
            self._asked[identity] = self._requests + 1
            entries.append(
                FetchEntry(
                    identity,
                    partition.leader_epoch,
                    partition.log.end_offset,
                    partition.log.last_epoch,
                    config.fetch_partition_bytes_max,
                    partition.config.flush == "ack",
                )
            )
        self._requests += 1
        fetcher.request = self._requests
        fetcher.unanswered[self._requests] = now_ms
        message = Fetch(
            self._requests,
            self._broker_id,
            self.broker_epoch,
            fetcher.session,
            fetcher.session_epoch,
            # More to name than fits one message: the answer need not wait for news.
            0 if fetcher.changed else config.fetch_wait_ms,
            1,
            config.fetch_bytes_max,
            entries,
            list(fetcher.forgotten),
            fetcher.catch_up,
            bool(self._attempts) and any(entry.partition in self._attempts for entry in entries),
        )
        fetcher.forgotten.clear()
        if fetcher.session_epoch > 0:
            fetcher.session_epoch += 1
        self._outbox.messages.append((fetcher.leader, message))

    def _lost(self, fetcher: Fetcher, now_ms: int) -> None:
        fetcher.restart()
        fetcher.failures += 1
        fetcher.resume_ms = now_ms + self._pause(fetcher.failures)
        self.due_ms = 0

    def _pause(self, failures: int) -> int:
        config = self._config
        pause = min(config.retry_backoff_ms * 2 ** min(failures - 1, 20), config.retry_backoff_ms_max)
        return max(1, int(pause * (0.75 + self._ids.jitter() / 2)))

    # --------------------------------------------------------------------------------------------------------- answers

    def session_of(self, fetched: Fetched, leader: object) -> Fetcher | None:
        """The session an answer belongs to: by its request, or (superseded requests) by its number. None: drop it."""
        for catch_up in (False, True):
            fetcher = self._fetchers.get((leader, catch_up))  # type: ignore[arg-type]
            if fetcher is not None and (fetcher.request == fetched.request or (fetched.session and fetcher.session == fetched.session)):
                return fetcher
        return None

    def answered(self, fetcher: Fetcher, fetched: Fetched, now_ms: int) -> bool:
        """Take the head of an answer; True if its entries may be applied."""
        if fetched.error:
            # Of a fetch that was replaced this says nothing: a repetition is refused as well, while the answer to the first may be lost.
            if fetcher.request == fetched.request:
                first = fetcher.failures == 0
                self._lost(fetcher, now_ms)
                if first and fetched.error in (Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH):
                    fetcher.resume_ms = now_ms
            return False
        fetcher.unanswered.pop(fetched.request, None)
        if fetcher.request == fetched.request:
            fetcher.request = None
            fetcher.failures = 0
            if fetcher.session_epoch == 0:
                fetcher.session = fetched.session
                fetcher.session_epoch = 1
        return True

    def is_late(self, identity: PartitionId, fetched: Fetched) -> bool:
        """Whether an answer is older than the last question about a partition. Offset and epoch alone do not tell: a late word that
        the logs part at an offset would cut what was fetched since, up to that very offset.
        """
        return fetched.request < self._asked.get(identity, 0)

    def took(self, partition: Partition, entry: FetchedEntry, outcome: Followed, now_ms: int) -> None:
        """An entry was applied: what to ask next."""
        identity = partition.identity
        fetcher = self._where.get(identity)
        if fetcher is None:
            return
        if outcome is Followed.APPENDED:
            self._attempts.pop(identity, None)
            fetcher = self._choose_session(fetcher, partition, entry)
            again_ms = self._throttle.pause_until_ms(partition, entry.slices, now_ms)
            if again_ms > now_ms:
                self._delayed[identity] = again_ms
            else:
                fetcher.changed[identity] = None
        elif outcome is Followed.TRUNCATED:
            fetcher.changed[identity] = None
        elif outcome is Followed.RETRY:
            attempts = self._attempts[identity] = self._attempts.get(identity, 0) + 1
            self._delayed[identity] = now_ms + self._pause(attempts)
        elif outcome is Followed.KEPT_UP:
            self._attempts.pop(identity, None)
            if fetcher.catch_up:
                chosen = self._choose_session(fetcher, partition, entry)
                if chosen is not fetcher:
                    chosen.changed[identity] = None

    def _choose_session(self, fetcher: Fetcher, partition: Partition, entry: FetchedEntry) -> Fetcher:
        behind = entry.end_offset > partition.log.end_offset
        if behind == fetcher.catch_up:
            return fetcher
        if behind and sum(piece.length for piece in entry.slices) * 2 < self._config.fetch_partition_bytes_max:
            return fetcher  # a small answer at a busy leader: the next one reaches the end
        self._leave(partition.identity)
        return self._join(partition, fetcher.leader, catch_up=behind)

    def disconnected(self, leader: object, now_ms: int) -> None:
        """Nobody is there now: what was under way is lost."""
        for catch_up in (False, True):
            fetcher = self._fetchers.get((leader, catch_up))  # type: ignore[arg-type]
            if fetcher is not None and fetcher.request is not None:
                self._lost(fetcher, now_ms)
                self.due_ms = 0
