"""At least once: rows are appended as they come, by a producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from replog.client.client import Client
from replog.spark.appending import Appender
from replog.spark.cells import Placed
from replog.spark.delivery import Attempt, Place, Written
from replog.spark.filling import Filling, counted

__all__ = ["AppendingSink", "AtLeastOnce"]


@frozen
class AtLeastOnce:
    """An attempt that is repeated appends its rows again, and so does a job that is run again."""

    acks: int
    compression: Literal["lz4"] | None
    batch_bytes: int
    """Cells in one batch, unless the topic allows less, or a single record has more."""

    def begin(self, client: Client, attempt: Attempt) -> AppendingSink:
        """Nothing is asked of anybody yet."""
        appender = Appender(client, acks=self.acks, compression=self.compression)
        return AppendingSink(appender, attempt, self.batch_bytes, Filling(client._core.config.buffer_bytes // 2))

    def commit(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """Everything is in the log already."""

    def abort(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """What is in the log stays there."""


class AppendingSink:
    """Fills one batch per partition, and appends it when it is full."""

    def __init__(self, appender: Appender, attempt: Attempt, batch_bytes: int, filling: Filling) -> None:
        self._appender = appender
        self._attempt = attempt
        self._batch_bytes = batch_bytes
        self._filling = filling
        self._records: dict[Place, int] = {}

    def add(self, placed: Placed) -> None:
        """Into the open batch; what is full leaves."""
        limit = min(self._batch_bytes, self._appender.room_in_a_batch(placed.topic))
        place = placed.topic, placed.partition
        self._records[place] = self._records.get(place, 0) + placed.cells.records
        for left, full in self._filling.add(placed, limit):
            self._appender.append(*left, full.several)

    def finish(self) -> Written:
        """Append what is left, and wait for every acknowledgement."""
        for left, open_one in self._filling.rest():
            self._appender.append(*left, open_one.several)
        self._appender.finish()
        return Written(self._attempt, sum(self._records.values()), counted(self._records))

    def abandon(self) -> None:
        """What was appended stays; the rest is forgotten."""
        self._filling.rest()
        self._appender.give_up()
