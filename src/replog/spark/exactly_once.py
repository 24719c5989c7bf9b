"""Exactly once: each task stores its own output, once for each partition it writes to, however often Spark runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import uuid4

from attrs import frozen

from replog.client.client import Client
from replog.spark.cells import Placed
from replog.spark.delivery import Attempt, Place, Written
from replog.spark.filling import Filling, Open, counted
from replog.spark.placing import room_in
from replog.spark.work import Work, key_of_slice

__all__ = ["ExactlyOnce", "OnceSink", "PieceSink"]


@frozen
class ExactlyOnce:
    """What a task has for a partition is one batch that bears the mark of writer, slice and version, and that the leader stores once. What
    is more than a batch holds, or than memory holds, is put aside in pieces and published at the end of the task: the same mark.
    """

    compression: Literal["lz4"] | None
    batch_bytes: int
    """Cells in one piece, where there is more than one."""

    def begin(self, client: Client, attempt: Attempt) -> OnceSink:
        """Nothing is asked of anybody yet. Raises UsageError for a writer that cannot be one."""
        work = Work(client, key_of_slice(attempt), attempt.version, compression=self.compression)
        return OnceSink(client, work, attempt, self.batch_bytes)

    def commit(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """Everything is in the log already."""

    def abort(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """What tasks have stored stays; what they have put aside expires."""


class PieceSink:
    """Fills one batch per partition, and puts it aside when it has to leave."""

    def __init__(self, client: Client, work: Work, attempt: Attempt, batch_bytes: int) -> None:
        self._client = client
        self._work = work
        self._attempt = attempt
        self._batch_bytes = batch_bytes
        self._filling = Filling(client._core.config.buffer_bytes // 2)
        self._name = f"{attempt.slice}-{uuid4().hex[:16]}"
        """Of what is put aside. Spark's number of the attempt begins anew with each application: it may have been there before."""
        self._records: dict[Place, int] = {}
        self._pieces: dict[Place, int] = {}
        self._done: set[Place] = set()
        """Where the version is in the log already: nothing more need go there."""

    def add(self, placed: Placed) -> None:
        """Into the open batch; what is full leaves."""
        place = placed.topic, placed.partition
        self._records[place] = self._records.get(place, 0) + placed.cells.records
        if place not in self._done:
            for left, full in self._filling.add(placed, self._limit(place)):
                self._stage(left, full)

    def abandon(self) -> None:
        """What is stored stays, what is put aside expires; the rest is forgotten."""
        self._filling.rest()
        self._work.give_up()

    def _limit(self, place: Place) -> int:
        """Bytes of cells in the open batch of a partition."""
        return min(self._batch_bytes, room_in(self._client, place[0]))

    def _stage(self, place: Place, full: Open) -> None:
        if place not in self._done:
            number = self._pieces.get(place, 0)
            self._pieces[place] = number + 1
            self._work.stage(place, self._name, number, full.several, self._done.add)

    def _told(self, **more: object) -> Written:
        return Written(self._attempt, sum(self._records.values()), counted(self._records), **more)  # type: ignore[arg-type]


class OnceSink(PieceSink):
    """Appends what fits into one batch, and publishes what does not."""

    def finish(self) -> Written:
        """Everything is stored and acknowledged by all in-sync replicas, by this attempt or by another one at the same work."""
        for place, rest in self._filling.rest():
            if place in self._pieces:
                self._stage(place, rest)
            else:
                self._work.append(place, rest.several)
        self._work.finish()
        for place, pieces in self._pieces.items():
            if place not in self._done:
                self._work.publish(place, [(self._name, pieces)])
        self._work.finish()
        return self._told()

    def _limit(self, place: Place) -> int:
        """As much as the topic lets be one batch; where that was not enough, pieces as large as other batches."""
        return super()._limit(place) if place in self._pieces else room_in(self._client, place[0])
