"""Fetches as a leader serves them: incremental sessions of followers, and clients that wait for records (KIP-227).

A session remembers what a follower has asked for, so that a fetch and its answer name only what changed: 10,000 quiet
partitions cost nothing. A client's fetch is a session that is answered once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from replog.broker.parked import Parked
from replog.broker.refusals import Refusals
from replog.broker.room import ENTRY_BYTES, FILES_MAX, ROOM_BYTES, SLICE_BYTES, in_its_place, shorten
from replog.broker.session import Asked, Session, join, leave
from replog.broker.share import share_of
from replog.config import BrokerConfig
from replog.errors import Code, LogCorrupt, LogDamaged, LogFull
from replog.messages import Fetch, Fetched, FetchedEntry, FetchEntry, Unsent
from replog.model import Address, PartitionId
from replog.partition.following import parsed
from replog.partition.partition import Partition
from replog.partition.replica import Contact
from replog.ports import Outbox, Slice
from replog.records import BadBatch

__all__ = ["READER_PARTITIONS_MAX", "VERIFY_BYTES_MAX", "Session", "Sessions"]

READER_PARTITIONS_MAX: Final = 4
"""So many a client's fetch may name: it is answered in one piece, and thousands may be woken by one append. Clients name one."""
VERIFY_BYTES_MAX: Final = 1 << 20
"""So much is checked for a client in one fetch, a larger batch apart: small batches take long, and everything else waits meanwhile."""
_WAIT_MS_MAX: Final = 60_000
"""No fetch is held for longer, whatever it says; `fetch_wait_ms`, and what clients ask for, stay below."""


class Sessions:
    """All readers of one broker."""

    def __init__(
        self,
        outbox: Outbox,
        partitions: Mapping[PartitionId, Partition],
        config: BrokerConfig,
        *,
        moved: Callable[[Partition, int, int], None],
        failed: Callable[[Partition, str], None],
        full: Callable[[Partition, LogFull], None],
        event: Callable[..., None],
    ) -> None:
        """`moved(partition, old high watermark, now)` is told after each acknowledgement; `failed` when a read finds bad bytes; `full` when
        nothing can be read for now; `event` what operators should hear of."""
        self._outbox = outbox
        self._partitions = partitions
        self._config = config
        self._moved = moved
        self._failed = failed
        self._full = full
        self._event = event
        self._refusals = Refusals()
        self._followers: dict[tuple[int, bool], Session] = {}
        self._contacts: dict[int, Contact] = {}
        self._clients: dict[Session, None] = {}
        """Clients' fetches that wait."""
        self._of_reader: dict[Address, dict[Session, None]] = {}
        """Which of these each reader has."""
        self.parked = Parked(config.slice_partitions_max)
        self._numbers = 0

    # ------------------------------------------------------------------------------------------------------- requests

    def on_fetch(self, sender: Address, fetch: Fetch, now_ms: int) -> None:
        """Take a fetch: acknowledge, remember, and let it wait for the end of the poll, or for news.

        A client's fetch of more than `READER_PARTITIONS_MAX` partitions, or one that takes some back, is refused with INVALID_REQUEST.
        """
        if fetch.replica < 0 and (len(fetch.entries) > READER_PARTITIONS_MAX or fetch.forgotten):
            self._refuse(sender, fetch, Code.INVALID_REQUEST)
            return
        session = self._open(sender, fetch, now_ms) if fetch.session_epoch <= 0 else self._resume(sender, fetch)
        if session is None:
            return
        for identity in fetch.forgotten:
            self._forget(session, identity)
        if session.request is not None:
            # Its reader has more to ask. Every fetch is answered, this one with nothing: so a lost answer is noticed.
            session.contact.parked -= 1
            empty = Fetched(session.request, session.number, session.epoch - 1, Code.NONE, [], session.catch_up)
            self._outbox.messages.append((session.reader, empty))
        session.request = fetch.request
        session.deadline_ms = now_ms + min(fetch.max_wait_ms, _WAIT_MS_MAX)
        waits = session.is_follower or session in self._clients
        if waits and fetch.max_wait_ms > 0:
            self.parked.wait(session, len(self._clients) + len(self._followers))
        session.max_bytes = fetch.max_bytes if fetch.max_bytes < self._config.fetch_bytes_max else self._config.fetch_bytes_max
        session.verify = fetch.verify
        session.contact.parked += 1
        session.contact.last_fetch_ms = now_ms
        for entry in fetch.entries:
            if not self._is_late(session, fetch, entry.partition):
                self._ask(session, entry, fetch.request, now_ms, waits=waits)
        if not waits:
            self._answer_now(session, fetch)
        elif session.ready or fetch.max_wait_ms <= 0:
            self._tell(session)

    def _open(self, sender: Address, fetch: Fetch, now_ms: int) -> Session | None:
        if fetch.replica < 0:
            session = Session(sender, -1, -1, 0, Contact())
            share = len(self._of_reader.get(sender, ()))
            # Beyond that it is answered at once: others find room.
            if not self._is_full() and share < share_of(self._config.waiting_fetches_max):
                self._of_reader.setdefault(sender, {})[session] = None
                self._clients[session] = None
            return session
        key = (fetch.replica, fetch.catch_up)
        known = self._followers.get(key)
        if known is not None:
            late = fetch.broker_epoch < known.broker_epoch or (fetch.broker_epoch == known.broker_epoch and fetch.request <= known.opened)
            if late or (fetch.session_epoch < 0 and fetch.session != known.number):
                return None  # about a session that has been replaced
            self.close(key)
        if fetch.session_epoch < 0:
            return None
        if len(self._followers) >= self._config.fetch_sessions_max:
            self._refuse(sender, fetch, Code.QUOTA_EXCEEDED)
            if self._refusals.refused(key, now_ms):
                limit = self._config.fetch_sessions_max
                self._event("fetch_session_refused", follower=fetch.replica, catch_up=fetch.catch_up, limit=limit)
            return None
        self._refusals.granted(key)
        self._numbers += 1
        contact = self._contacts.setdefault(fetch.replica, Contact())
        session = self._followers[key] = Session(sender, fetch.replica, fetch.broker_epoch, self._numbers, contact, fetch.catch_up)
        session.opened = fetch.request
        return session

    def _is_full(self) -> bool:
        return len(self._clients) >= self._config.waiting_fetches_max

    def _answer_now(self, session: Session, fetch: Fetch) -> None:
        """A reader for whom there is no room to wait hears what there is: those who wait keep nobody from reading.

        Told that there is nothing it would ask again at once. It is refused, and pauses.
        """
        if session.ready or fetch.max_wait_ms <= 0 or not self._is_full():
            self._answer(session)
        else:
            self._refuse(session.reader, fetch, Code.QUOTA_EXCEEDED)

    def _resume(self, sender: Address, fetch: Fetch) -> Session | None:
        session = self._followers.get((fetch.replica, fetch.catch_up))
        if session is None or session.number != fetch.session or session.broker_epoch != fetch.broker_epoch:
            self._refuse(sender, fetch, Code.FETCH_SESSION_ID_NOT_FOUND)
            return None
        if fetch.session_epoch != session.epoch + 1:
            self._refuse(sender, fetch, Code.INVALID_FETCH_SESSION_EPOCH)
            return None
        session.epoch = fetch.session_epoch
        session.reader = sender
        return session

    def _refuse(self, sender: Address, fetch: Fetch, error: int) -> None:
        self._outbox.messages.append((sender, Fetched(fetch.request, fetch.session, fetch.session_epoch, error, [], fetch.catch_up)))

    def _is_late(self, session: Session, fetch: Fetch, identity: PartitionId) -> bool:
        """Whether the follower has named this partition in its other lane since: what it says here is not true any more.

        Such a fetch opens a lane again that was closed before it came; it would take back what the follower has acknowledged.
        """
        other = self._followers.get((session.replica, not fetch.catch_up)) if session.is_follower else None
        known = None if other is None or other.broker_epoch != session.broker_epoch else other.asked.get(identity)
        return known is not None and known.request > fetch.request

    def _ask(self, session: Session, entry: FetchEntry, request: int, now_ms: int, *, waits: bool) -> None:
        identity = entry.partition
        asked = session.asked.get(identity)
        if asked is None:
            asked = session.asked[identity] = Asked(entry.leader_epoch, entry.offset, entry.max_bytes)
        else:
            asked.welcome = asked.welcome and asked.leader_epoch == entry.leader_epoch
            asked.leader_epoch = entry.leader_epoch
            asked.offset = entry.offset
            asked.max_bytes = entry.max_bytes
            asked.told = False
        asked.request = request
        asked.answer = None
        partition = self._partitions.get(identity)
        if partition is None:
            asked.answer = FetchedEntry(identity, entry.leader_epoch, entry.offset, Code.UNKNOWN_TOPIC_ID)
            session.ready[identity] = None
            return
        if waits:
            join(partition, session)
        if session.is_follower:
            self._acknowledge(session, asked, partition, entry, now_ms)
            # The first good answer of an epoch comes at once, empty or not: it carries the high watermark, and tells the
            # follower that its log is a prefix of this one.
            if not asked.welcome or asked.answer is not None or entry.offset < partition.log.end_offset:
                session.ready[identity] = None
            else:
                session.ready.pop(identity, None)
                session.news[identity] = None  # what an earlier answer said of the high watermark may have come too late to count
            return
        error = partition.check_epoch(entry.leader_epoch) or partition.check_read(entry.offset)
        if error:
            asked.answer = self._error(partition, asked, error)
        if error or entry.offset < partition.high_watermark:
            session.ready[identity] = None

    def _acknowledge(self, session: Session, asked: Asked, partition: Partition, entry: FetchEntry, now_ms: int) -> None:
        before = partition.high_watermark
        error, parted = partition.acknowledge(session.replica, session.broker_epoch, entry, session.contact, now_ms)
        if error:
            asked.answer = self._error(partition, asked, error)
            return
        if parted is not None:
            asked.answer = self._error(partition, asked, Code.NONE)
            asked.answer.diverging_epoch, asked.answer.diverging_end = parted
            return
        self._moved(partition, before, now_ms)

    def _error(self, partition: Partition, asked: Asked, error: int) -> FetchedEntry:
        log = partition.log
        return FetchedEntry(
            partition.identity, asked.leader_epoch, asked.offset, error, partition.high_watermark, log.start_offset, log.end_offset
        )

    def on_unsent(self, sender: Address, unsent: Unsent, now_ms: int) -> None:
        """An answer of this broker that no frame can carry: whoever waits for it hears so."""
        answer = in_its_place(unsent)
        if answer is not None:
            self._outbox.messages.append((unsent.to, answer))

    # ----------------------------------------------------------------------------------------------------------- news

    def appended(self, partition: Partition) -> None:
        """The leader's log has grown: followers have something to fetch."""
        identity = partition.identity
        for session in partition.sessions:
            if not session.asked[identity].told:
                session.ready[identity] = None
                if session.request is not None:
                    self.parked.tell(session)

    def committed(self, partition: Partition) -> None:
        """The high watermark has moved: clients have something to read, followers something to hear."""
        identity = partition.identity
        for session in partition.sessions:
            session.news[identity] = None
        if partition.readers:
            self.parked.moved[identity] = partition

    def changed(self, partition: Partition) -> None:
        """Role or epoch have changed: whoever waits here for the old one is told at the end of the poll.

        Who was told something does not wait: it asks again. Between a refusal and that nobody knows whether its log is a prefix of this
        one, and the leader of the epoch that it has asked for may be here by now.
        """
        identity = partition.identity
        for session in (*partition.sessions, *partition.readers):
            asked = session.asked[identity]
            if not asked.told and (asked.leader_epoch not in (partition.leader_epoch, -1) or partition.failed):
                session.ready[identity] = None
                self._tell(session)

    def _look_at_readers(self) -> None:
        """Clients that have something to read since the last turn."""
        moved, self.parked.moved = self.parked.moved, {}
        for identity, partition in moved.items():
            for session in tuple(partition.readers):
                if partition.high_watermark > session.asked[identity].offset:
                    session.ready[identity] = None
                    self._tell(session)

    def _tell(self, session: Session) -> None:
        """It has something to hear. A client is answered once, and needs no further news: whatever it asked for is looked up then."""
        for identity in () if session.is_follower else session.asked:
            partition = self._partitions.get(identity)
            if partition is not None:
                leave(partition, session)
        self.parked.tell(session)

    # -------------------------------------------------------------------------------------------------------- answers

    def answer_waiting(self, now_ms: int) -> None:
        """End of a poll: answer the fetches that have something to hear, or have waited long enough; so many of clients in one turn."""
        if self.parked.moved:
            self._look_at_readers()
        for session in self.parked.in_turn(now_ms):
            self._answer(session)

    def _answer(self, session: Session) -> None:
        entries: list[FetchedEntry] = []
        budget, room, files = session.max_bytes, ROOM_BYTES, FILES_MAX
        if session.verify and not session.is_follower and budget > VERIFY_BYTES_MAX:
            budget = VERIFY_BYTES_MAX
        # A follower hears what is new, from then on; a client asks once, and hears of everything that it asked for.
        for identity in list(session.ready if session.is_follower else session.asked):
            if budget <= 0 or room < ENTRY_BYTES or len(entries) >= self._config.slice_partitions_max:
                break
            asked = session.asked[identity]
            entry = self._entry(session, identity, asked, budget)
            if not shorten(entry, room, files, alone=not entries):
                break  # first in the next answer
            session.ready.pop(identity, None)
            session.news.pop(identity, None)
            room -= ENTRY_BYTES
            for piece in entry.slices:
                budget -= piece.length
                room -= SLICE_BYTES + piece.length
                files -= hasattr(piece, "fileno")
            refused = entry.error != Code.NONE or entry.diverging_epoch >= 0
            asked.told = refused or bool(entry.slices)
            asked.welcome = not refused
            entries.append(entry)
        if session.is_follower and session.news:
            # Those that were told data are named again soon, and may need it then: their news is kept. Those that are still
            # ready wait for room: a divergence must be heard before any high watermark (KAFKA-14704).
            limit = min(self._config.slice_partitions_max, room // ENTRY_BYTES)
            for identity in [i for i in session.news if i not in session.ready and not session.asked[i].told][:limit]:
                del session.news[identity]
                partition = self._partitions.get(identity)
                if partition is not None:
                    entries.append(self._error(partition, session.asked[identity], Code.NONE))
        assert session.request is not None
        message = Fetched(session.request, session.number, session.epoch, Code.NONE, entries, session.catch_up)
        self._outbox.messages.append((session.reader, message))
        session.request = None
        session.contact.parked -= 1
        if not session.is_follower:
            self._end(session)

    def _entry(self, session: Session, identity: PartitionId, asked: Asked, budget: int) -> FetchedEntry:
        if asked.answer is not None:
            answer, asked.answer = asked.answer, None
            return answer
        partition = self._partitions.get(identity)
        if partition is None:
            return FetchedEntry(identity, asked.leader_epoch, asked.offset, Code.UNKNOWN_TOPIC_ID)
        error = 0 if asked.leader_epoch == partition.leader_epoch else partition.check_epoch(asked.leader_epoch)
        if not error and session.is_follower and partition.leading is None:
            error = Code.NOT_LEADER_OR_FOLLOWER
        if not error and not session.is_follower:
            error = partition.check_read(asked.offset)
        if not error and asked.offset < partition.log.start_offset:  # retention has passed a follower that waited
            error = Code.OFFSET_OUT_OF_RANGE
        entry = self._error(partition, asked, error)
        if error:
            return entry
        if budget > asked.max_bytes:
            budget = asked.max_bytes
        try:
            if session.is_follower:
                entry.slices = partition.read_as_leader(asked.offset, budget)
            else:
                entry.slices, entry.high_watermark = partition.read_committed(asked.offset, budget)
            if session.verify:
                _verify(entry.slices, identity, asked.offset)
        except LogFull as problem:
            # Nothing is wrong with this copy. Refused, its reader pauses and asks again; told that there is nothing, a follower would wait.
            self._full(partition, problem)
            entry.error = Code.LOG_DIRECTORY_FULL
        except (LogCorrupt, LogDamaged, BadBatch) as problem:
            # Found when read: this copy leads no longer, and an intact one takes over.
            self._failed(partition, str(problem))
            entry.error = Code.STORAGE_ERROR
            for piece in entry.slices:
                piece.release()
            entry.slices = []
        return entry

    # ------------------------------------------------------------------------------------------------------- endings

    def close(self, key: tuple[int, bool]) -> None:
        """End a follower's session; a fetch that waits in it is never answered."""
        session = self._followers.pop(key, None)
        if session is not None:
            if session.request is not None:
                session.contact.parked -= 1
                session.request = None
            self._end(session)

    def disconnected(self, reader: Address) -> None:
        """The reader is gone: nothing waits for it any more."""
        for key in [key for key, session in self._followers.items() if session.reader == reader]:
            self.close(key)
        for session in list(self._of_reader.get(reader, ())):
            session.request = None
            self._end(session)

    def dropped(self, partition: Partition) -> None:
        """The partition leaves this broker: readers that wait hear that it is unknown, others when they ask."""
        for session in (*partition.sessions, *partition.readers):
            if not session.asked[partition.identity].told:
                session.ready[partition.identity] = None
                self._tell(session)
        partition.readers = ()  # whoever ends looks for it among those that are here
        self.parked.moved.pop(partition.identity, None)

    def _end(self, session: Session) -> None:
        if session in self._clients:
            del self._clients[session]
            del self._of_reader[session.reader][session]
            if not self._of_reader[session.reader]:
                del self._of_reader[session.reader]
        self.parked.forget(session)
        for identity in list(session.asked):
            self._forget(session, identity)

    def _forget(self, session: Session, identity: PartitionId) -> None:
        session.asked.pop(identity, None)
        session.ready.pop(identity, None)
        session.news.pop(identity, None)
        partition = self._partitions.get(identity)
        if partition is not None:
            leave(partition, session)


def _verify(slices: Sequence[Slice], identity: PartitionId, offset: int) -> None:
    """Raise BadBatch unless these are whole batches of one log, one after the other, from the one that holds `offset`."""
    for piece in slices:
        for batch in parsed(piece.view(), identity):
            if batch.base_offset > offset:
                raise BadBatch(f"a batch at offset {batch.base_offset} where {offset} is expected")
            offset = batch.end_offset
