"""What happens when records that were to be read are gone: the job fails, or goes on without them and says so (`failOnDataLoss`)."""

from __future__ import annotations

import logging

from replog.errors import ReplogError
from replog.model import TopicPartition

__all__ = ["DataLost", "Losses"]

_log = logging.getLogger("replog.spark")


class DataLost(ReplogError):
    """Records that a read was to return are gone. `topic`, `partition`, `first` and `stop` say which offsets: [first, stop). Empty: none
    of them is known to be, but what is there from this offset on belongs to another log, or is not read."""

    def __init__(self, text: str, place: TopicPartition, first: int, stop: int) -> None:
        super().__init__(text)
        self.topic, self.partition = place
        self.first = first
        self.stop = stop


class Losses:
    """Decides about losses as the option `failOnDataLoss` has it."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail

    def lost(self, place: TopicPartition, first: int, stop: int, why: str) -> None:
        """Offsets [first, stop) of a partition cannot be read any more. Raises DataLost, or logs a warning."""
        text = f"{place}: offsets {first} to {stop - 1} cannot be read any more: {why}"
        if first >= stop:  # nothing that was to be read, but the next offsets are others than they were
            text = f"{place}: what was read up to offset {first} is not what is there now: {why}"
        self._decide(text, "the read goes on without them", place, first, stop)

    def went_back(self, place: TopicPartition, offset: int, back: int) -> None:
        """A query that was started again has read a partition up to an offset, and its checkpoint goes on before it: why is not there.
        Raises DataLost, with an empty range (everything up to the offset was read, what came behind it nobody knows); or logs a warning."""
        text = f"{place}: its log was replaced or cut, which was found before the query was started again: "
        text += f"the query goes back from offset {offset} to offset {back}"
        self._decide(text, "it reads what is there now", place, offset, offset)

    def left_out(self, place: TopicPartition, offset: int, option: str) -> None:
        """A query has read a partition up to an offset, and its options of now do not name it. Raises DataLost, or logs a warning."""
        text = f"{place}: the query has read it up to offset {offset}, and the option {option} leaves it out now"
        text = f"{text}: name it again, and the query goes on there" if self._fail else text
        ends = "the query goes on without it, and begins at its first record when it is named again"
        self._decide(text, ends, place, offset, offset)

    def _decide(self, text: str, ends: str, place: TopicPartition, first: int, stop: int) -> None:
        if self._fail:
            raise DataLost(f"{text}; with the option failOnDataLoss=false {ends}", place, first, stop)
        _log.warning("%s; %s (failOnDataLoss=false)", text, ends)
