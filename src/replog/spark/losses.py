"""What happens when records that were to be read are gone: the job fails, or goes on without them and says so (`failOnDataLoss`)."""

from __future__ import annotations

import logging

from replog.errors import ReplogError
from replog.model import TopicPartition

__all__ = ["DataLost", "Losses"]

_log = logging.getLogger("replog.spark")


class DataLost(ReplogError):
    """Records that a read was to return are gone. `topic`, `partition`, `first` and `stop` say which offsets: [first, stop)."""

    def __init__(self, text: str, place: TopicPartition, first: int, stop: int) -> None:
        super().__init__(text)
        self.topic, self.partition = place
        self.first = first
        self.stop = stop

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), TopicPartition(self.topic, self.partition), self.first, self.stop)


class Losses:
    """Decides about losses as the option `failOnDataLoss` has it."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail

    def lost(self, place: TopicPartition, first: int, stop: int, why: str) -> None:
        """Offsets [first, stop) of a partition cannot be read any more. Raises DataLost, or logs a warning."""
        text = f"{place}: offsets {first} to {stop - 1} cannot be read any more: {why}"
        if first >= stop:  # nothing that was to be read, but the next offsets are others than they were
            text = f"{place}: what was read up to offset {first} is not what is there now: {why}"
        if self._fail:
            raise DataLost(f"{text}; with the option failOnDataLoss=false the read goes on without them", place, first, stop)
        _log.warning("%s; the read goes on without them (failOnDataLoss=false)", text)
