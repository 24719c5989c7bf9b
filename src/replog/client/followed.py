"""How far a consumer has read one partition: its position, what is buffered, and what is being asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from replog.client.offsets import OffsetOp
from replog.client.operations import AT_EARLIEST, PartitionOp
from replog.client.results import Fetch
from replog.client.unpacking import epochs_before, unpack
from replog.config import BATCH_HEADERS_MAX
from replog.errors import Unavailable, UndecodableBatch
from replog.messages import ListedOffset
from replog.model import Address, PartitionId
from replog.records import Record, RecordBatch

__all__ = ["Followed"]


class Followed:
    """One partition that a consumer follows.

    Its owner may be interrupted at any call (a Ctrl-C) and go on with it. So whatever moves the position works out all of it first, and
    then assigns it with no call in between: it is where it was, or where it was to be.
    """

    __slots__ = (
        "at", "buffer", "epochs", "fetch_offset", "headers", "identity", "known_epoch", "number", "offset", "op", "paused", "seen", "topic",
        "trouble", "undecodable", "unread", "wanted", "watermark",
    )  # fmt: skip

    def __init__(self, topic: str, number: int, start: tuple[int | None, int | None], seen: PartitionId | None) -> None:
        self.topic = topic
        self.number = number
        self.seen: PartitionId | None
        """The log that had this name when the position was given; None if none was known."""
        self.op: PartitionOp | None
        """What is being asked."""
        self.offset: int | None
        """Of the next record to hand out; None until the leader has said where `wanted` is."""
        self.wanted: int | None
        self.fetch_offset: int
        self.known_epoch: int
        self.epochs: Sequence[tuple[int, int]]
        """Where each leader epoch of what was read began."""
        self.identity: PartitionId | None
        """The log that the position belongs to; None until a leader has answered."""
        self.undecodable: UndecodableBatch | None
        """What is wrong with the batch at the position, until that has been raised."""
        self.buffer: list[Record] = []
        """What is unpacked: of the batch that is being handed out, and of those that a poll wants as well."""
        self.at = 0
        """How many of these have been handed out."""
        self.unread: deque[RecordBatch] = deque()
        """Behind those, as they were fetched."""
        self.headers = 0
        """Of all that was unpacked since `some` was called."""
        self.paused = False
        self.watermark: int | None = None
        """The last high watermark that a leader has told."""
        self.trouble = ""
        """Why the last question had no answer; "" if it had one."""
        self.seek(*start, seen)

    def seek(self, offset: int | None, wanted: int | None, seen: PartitionId | None) -> None:
        """Begin again elsewhere: at an offset, or wherever the leader says, of the log that has this name."""
        unread: deque[RecordBatch] = deque()
        self.seen = seen
        self.offset = offset
        self.wanted = wanted
        self.fetch_offset = offset or 0
        self.known_epoch = -1
        self.epochs = ()
        self.identity = None
        self.buffer, self.at = [], 0
        self.unread = unread
        self.undecodable = None
        self.op = None

    @property
    def log(self) -> PartitionId | None:
        """The log that the position is meant for."""
        return self.seen if self.identity is None else self.identity

    def located(self, asked: OffsetOp) -> None:
        """The leader has said where `wanted` is. Where no record is as young, that is "latest" of the moment in which it looked: asked
        for later, what was committed in between would be passed over."""
        listed: ListedOffset = asked.result
        offset = listed.offset if listed.offset >= 0 else asked.latest
        self.offset = self.fetch_offset = offset
        self.wanted = None
        self.identity = listed.partition
        self.known_epoch = listed.leader_epoch  # who led before may not know of what is there (KIP-320)
        self.op = None

    def fetched(self, result: Fetch) -> None:
        """Batches have come, or only control batches to be passed over."""
        unread = self.unread + deque(result.batches)
        offset = self.offset if unread else result.next_offset
        self.unread, self.offset = unread, offset
        self.fetch_offset = result.next_offset
        self.watermark = result.high_watermark
        self.epochs, self.known_epoch = result.epochs, result.known_epoch
        self.op = None

    @property
    def at_hand(self) -> bool:
        """Whether it needs no answer to go on, unless what is there cannot be decoded."""
        return bool(self.is_unpacked or self.unread)

    @property
    def is_unpacked(self) -> bool:
        """Whether the next record needs no decoding."""
        return self.at < len(self.buffer)

    def stands(self, leader: Address | None) -> str:
        """Where it is, and what is known of its leader, for whoever wonders why nothing comes."""
        at = "its end" if self.offset is None else f"offset {self.offset}"
        mark = "unknown" if self.watermark is None else self.watermark
        leads = "nobody" if leader is None else f"broker {leader}"
        trouble = f" ({self.trouble})" if self.trouble else ""
        return f"{self.topic}-{self.number} at {at}, high watermark {mark}, led by {leads}{trouble}"

    @property
    def failure(self) -> BaseException | None:
        """Why its question has failed for good, or its batch cannot be decoded; None: neither. What nobody has answered is asked again."""
        if self.undecodable is not None:
            return self.undecodable
        return self.op.error if self.op is not None and self.op.done and not isinstance(self.op.error, Unavailable) else None

    @property
    def lacks_start(self) -> bool:
        """Whether the leader has yet to say where to begin, and says another place the later it is asked. Its first record it may name at
        any time, and an offset need not be asked for."""
        return self.wanted is not None and self.wanted != AT_EARLIEST

    @property
    def lacks_question(self) -> bool:
        """Whether it is to be asked for records, or where they are; of one that is paused, where it begins."""
        return self.op is None and not self.at_hand and self.undecodable is None and (not self.paused or self.lacks_start)

    def behind(self, count: int) -> tuple[list[Record], int, int | None]:
        """`buffer`, `at` and `offset` once the next `count` of those that are unpacked are with the application."""
        at = self.at + count
        if at < len(self.buffer):
            return self.buffer, at, self.buffer[at - 1].offset + 1
        # A quiet partition keeps nothing.
        return [], 0, self.buffer[-1].offset + 1 if self.unread else self.fetch_offset

    def hand_out(self, count: int) -> None:
        """The next `count` of those that are unpacked are with the application. Nothing before it has moved the position: whatever
        interrupts the decoding costs no records."""
        self.buffer, self.at, self.offset = self.behind(count)

    def some(self, most: int) -> list[Record]:
        """The next records, `most` of them at most, which stay here until they are handed out. Fewer, once what was unpacked for it has
        many headers: compressed, an answer may hold any number."""
        self.headers = 0
        try:
            while len(self.buffer) - self.at < most and (not self.is_unpacked or self.headers < BATCH_HEADERS_MAX) and self._unpack_next():
                pass
        except MemoryError:  # several batches may be too many; one that is has its turn
            if not self.is_unpacked:
                raise
        return self.buffer[self.at : self.at + most]

    def unpack(self) -> bool:
        """If nothing is, unpack the next batch that has records, in the thread of whoever takes them and without a lock. Returns whether
        there are any. What is undecodable becomes the failure, with the position at it; it and what is behind it is to be asked for again.
        """
        while not self.is_unpacked and self._unpack_next():
            pass
        return self.is_unpacked

    def _unpack_next(self) -> bool:
        """Unpack one more batch, behind those that are. Returns whether there was one; one that is undecodable waits for its turn."""
        if not self.unread:
            return False
        if self.at:
            self.buffer, self.at = self.buffer[self.at :], 0
        batch = self.unread[0]
        assert self.offset is not None
        # From there on: a batch that an interrupt has left here after it was unpacked has none.
        since = self.buffer[-1].offset + 1 if self.buffer else self.offset
        try:
            records, headers = unpack(batch, self.topic, self.number, since)
        except UndecodableBatch as bad:
            if not self.buffer:
                self.fetch_offset = self.offset = max(batch.base_offset, since)
                self.epochs = epochs_before(self.epochs, self.fetch_offset)
                self.undecodable = bad
                self.unread.clear()
            return False
        self.headers += headers
        self.buffer += records
        self.unread.popleft()
        return True
