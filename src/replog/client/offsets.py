"""Asking where something is in a partition: an end of its log, or the first record at or after a time.

Brokers decode no payload. For a time, the leader names the first batch that has a record so young; which record that is, the client
finds in the batch (as Kafka's brokers do in theirs, KIP-79).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from replog.client.fetching import FetchOp
from replog.client.operations import AT_LATEST
from replog.client.results import Fetch as FetchResult
from replog.client.unpacking import unpack
from replog.client.view import Place
from replog.errors import Code
from replog.messages import FetchedEntry, ListedOffset, ListedOffsets, ListOffsets, ListOffsetsEntry
from replog.model import Address
from replog.security.roles import DESCRIBE, READ

if TYPE_CHECKING:
    from replog.client.core import ClientCore

__all__ = ["OffsetOp"]


class OffsetOp(FetchOp):
    """Ask the leader for an offset: earliest, latest (the high watermark), or that of the first record at or after a time (ms since 1970).

    Result: ListedOffset; for a time with the offset and the time of that record, or with offset -1: there was none when `latest` was told.

    A batch is fetched, with every check of a fetch, from the leader that has named it: when another one leads, or retention has taken the
    batch meanwhile, the time is asked about again.
    """

    def __init__(self, topic: str, partition: int, at: int, deadline_ms: int) -> None:
        super().__init__(topic, partition, 0, max_bytes=1, wait_ms=0, deadline_ms=deadline_ms)  # of any size, one batch is sent
        self.what = "an offset"
        self.at = at
        self.action = READ if at >= 0 else DESCRIBE  # the time of a record is read
        self.latest = -1
        """The high watermark at the moment in which the leader looked for the time; -1: no time was asked for."""
        self._listed: ListedOffset | None = None
        """What the leader has said of the time: it is looked up in the batch. None: it has said nothing yet, or all is asked again."""
        self._told_at: Place | None = None
        self._ask_again()

    def _ask_again(self) -> None:
        self._listed = self._told_at = None
        self.is_read = False

    def target(self, core: ClientCore, now_ms: int) -> Address | None:
        """The leader. A new one is asked everything from the beginning."""
        leader = super().target(core, now_ms)
        if self.place != self._told_at:
            self._ask_again()
        return leader

    def message(self, core: ClientCore) -> Any:
        """The question for the end, or for the time and the high watermark of the same moment; then the fetch."""
        if self._listed is not None:
            return super().message(core)
        place = self.place
        assert place is not None
        wanted = (self.at,) if self.at < 0 else (self.at, AT_LATEST)
        return ListOffsets(self.request, [ListOffsetsEntry(place.identity, place.leader_epoch, at) for at in wanted])

    def answered(self, core: ClientCore, answer: Any, now_ms: int) -> int:
        """The offset, the batch that it is in, or why there is none."""
        if self._listed is not None:
            return super().answered(core, answer, now_ms)
        if not isinstance(answer, ListedOffsets) or self.place is None:
            return Code.UNKNOWN_SERVER_ERROR
        told = [entry for entry in answer.entries if entry.partition == self.place.identity]
        error = next((entry.error for entry in told if entry.error), Code.NONE)
        if error or not told:
            return error or Code.UNKNOWN_TOPIC_ID
        if self.at < 0:
            self.finish(told[0])
            return Code.NONE
        return self._look_into(told) if len(told) == 2 else Code.UNKNOWN_SERVER_ERROR

    def _look_into(self, told: list[ListedOffset]) -> int:
        """The batch that the leader has named, if there is one."""
        listed, self.latest = told[0], told[1].offset
        if listed.offset < 0:
            self.finish(listed)
        else:
            self._listed, self._told_at, self.is_read = listed, self.place, True
            self.offset = max(listed.offset, listed.start_offset)  # what lies below cannot be asked for
        return Code.NONE

    def _fetched(self, core: ClientCore, entry: FetchedEntry, leader_epoch: int, now_ms: int) -> int:
        """The batch; one that is gone is no error: the caller has asked for no offset."""
        if entry.error == Code.OFFSET_OUT_OF_RANGE:
            self._ask_again()
            return Code.OFFSET_NOT_AVAILABLE  # asked again after a pause
        return super()._fetched(core, entry, leader_epoch, now_ms)

    def _take(self, core: ClientCore, result: FetchResult, now_ms: int) -> None:
        """The first record that is young enough. A batch without any, whose header is wrong, is passed over, and so is a control batch.
        Raises UndecodableBatch."""
        assert self._listed is not None
        for batch in result.batches:  # one: it is decoded here, for only then it is known whether to ask on
            for record in unpack(batch, self.topic, self.partition, self.offset)[0]:
                timestamp_ms = record.timestamp_ms or 0
                if timestamp_ms >= self.at:
                    return self.finish(evolve(self._listed, offset=record.offset, timestamp_ms=timestamp_ms))
        if result.next_offset >= self.latest:
            self.finish(evolve(self._listed, offset=-1, timestamp_ms=-1))
        elif result.next_offset == self.offset:
            self._pause(core, now_ms)
        self.offset = result.next_offset
