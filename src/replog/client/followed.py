"""How far a consumer has read one partition: its position, what is buffered, and what is being asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from replog.client.offsets import OffsetOp
from replog.client.operations import AT_EARLIEST, PartitionOp
from replog.client.results import Fetch
from replog.errors import Unavailable
from replog.messages import ListedOffset
from replog.model import PartitionId
from replog.records import Record

__all__ = ["Followed"]


class Followed:
    """One partition that a consumer follows."""

    __slots__ = (
        "buffer", "epochs", "fetch_offset", "identity", "known_epoch", "number", "offset", "op", "paused", "seen", "topic",
        "trouble", "wanted", "watermark",
    )  # fmt: skip

    def __init__(self, topic: str, number: int, start: tuple[int | None, int | None], seen: PartitionId | None) -> None:
        self.topic = topic
        self.number = number
        self.seen = seen
        """The log that had this name when the position was given; None if none was known."""
        self.op: PartitionOp | None = None
        self.buffer: deque[Record] = deque()
        self.paused = False
        self.watermark: int | None = None
        """The last high watermark that a leader has told."""
        self.trouble = ""
        """Why the last question had no answer; "" if it had one."""
        self.seek(*start)

    def seek(self, offset: int | None, wanted: int | None) -> None:
        """Begin again elsewhere: at an offset, or wherever the leader says."""
        self.offset = offset
        """Of the next record to hand out; None until the leader has said where `wanted` is."""
        self.wanted = wanted
        self.fetch_offset = offset or 0
        self.known_epoch = -1
        self.epochs: Sequence[tuple[int, int]] = ()
        """Where each leader epoch of what was read began."""
        self.identity: PartitionId | None = None
        """The log that the position belongs to; None until a leader has answered."""
        self.buffer.clear()
        self.op = None

    @property
    def log(self) -> PartitionId | None:
        """The log that the position is meant for."""
        return self.seen if self.identity is None else self.identity

    def located(self, asked: OffsetOp) -> None:
        """The leader has said where `wanted` is. Where no record is as young, that is "latest" of the moment in which it looked: asked
        for later, what was committed in between would be passed over."""
        listed: ListedOffset = asked.result
        self.offset = self.fetch_offset = listed.offset if listed.offset >= 0 else asked.latest
        self.wanted = None
        self.identity = listed.partition
        self.known_epoch = listed.leader_epoch  # who led before may not know of what is there (KIP-320)

    def fetched(self, result: Fetch) -> None:
        """Records have come, or only control batches to be passed over."""
        self.buffer.extend(result.records)
        self.fetch_offset = result.next_offset
        self.watermark = result.high_watermark
        self.epochs, self.known_epoch = result.epochs, result.known_epoch
        if not self.buffer:
            self.offset = self.fetch_offset

    @property
    def failure(self) -> BaseException | None:
        """Why its question has failed for good; None: it has not. One that nobody has answered is asked again."""
        return self.op.error if self.op is not None and self.op.done and not isinstance(self.op.error, Unavailable) else None

    @property
    def lacks_start(self) -> bool:
        """Whether the leader has yet to say where to begin, and says another place the later it is asked. Its first record it may name at
        any time, and an offset need not be asked for."""
        return self.wanted is not None and self.wanted != AT_EARLIEST

    @property
    def lacks_question(self) -> bool:
        """Whether it is to be asked for records, or where they are; of one that is paused, where it begins."""
        return self.op is None and not self.buffer and (not self.paused or self.lacks_start)

    def take(self) -> Record:
        """Hand out the next record."""
        record = self.buffer.popleft()
        self.offset = record.offset + 1 if self.buffer else self.fetch_offset
        return record
