"""One partition that a consumer follows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from replog.client.offsets import OffsetOp
from replog.client.operations import AT_EARLIEST, AT_LATEST, PartitionOp
from replog.client.results import Fetch
from replog.errors import Unavailable
from replog.messages import ListedOffset
from replog.model import PartitionId
from replog.records import Record

__all__ = ["Followed"]


class Followed:
    """How far one partition has been read, what is buffered, and what is being asked."""

    __slots__ = (
        "asked", "asked_bytes", "asked_ms", "buffer", "bytes_each", "epochs", "fetch_offset", "identity", "known_epoch", "max_bytes",
        "number", "offset", "op", "paused", "seen", "topic", "trouble", "wait_ms", "wanted", "watermark",
    )  # fmt: skip

    def __init__(self, topic: str, number: int, start: tuple[int | None, int | None], seen: PartitionId | None) -> None:
        self.topic = topic
        self.number = number
        self.seen = seen
        """The log that had this name when the position was given; None if none was known."""
        self.op: PartitionOp | None = None
        self.buffer: deque[Record] = deque()
        self.bytes_each = 0
        """What a record of `buffer` takes in memory, on average."""
        self.asked = 0
        """Which question of its consumer its last one was; 0: it was never asked."""
        self.asked_ms = self.asked_bytes = self.max_bytes = self.wait_ms = 0
        """Of that question: when, what its answer is expected to take in memory, how many bytes the leader may send, and how long wait."""
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
        if asked.at != AT_EARLIEST:
            self.watermark = listed.offset if asked.at == AT_LATEST else asked.latest
        self.identity = listed.partition
        self.known_epoch = listed.leader_epoch  # who led before may not know of what is there (KIP-320)

    def fetched(self, result: Fetch) -> None:
        """Records have come, or only control batches to be passed over."""
        self.buffer.extend(result.records)
        self.bytes_each = result.size // max(len(result.records), 1)
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
    def lacks_question(self) -> bool:
        """Whether it is to be asked for records, or where they are."""
        return self.op is None and not self.paused and not self.buffer

    @property
    def is_at_end(self) -> bool:
        """Whether everything was read that was committed when a leader last told: what comes next is new."""
        return self.watermark is not None and self.fetch_offset >= self.watermark

    def take(self) -> Record:
        """Hand out the next record."""
        record = self.buffer.popleft()
        self.offset = record.offset + 1 if self.buffer else self.fetch_offset
        return record
