"""Atomic: nothing of a job is seen before all of it is there; then, in each partition, all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from replog.client.client import Client
from replog.errors import UsageError
from replog.marks import ATTEMPTS_MAX
from replog.spark.delivery import Attempt, Place, Written
from replog.spark.exactly_once import PieceSink
from replog.spark.filling import counted
from replog.spark.work import Work, key_of_all

__all__ = ["Atomic", "StagingSink"]


@frozen
class Atomic:
    """Tasks put their output aside, each attempt under a name of its own; the driver publishes those that Spark chose."""

    compression: Literal["lz4"] | None
    batch_bytes: int
    """Cells in one piece."""

    def begin(self, client: Client, attempt: Attempt) -> StagingSink:
        """Nothing is asked of anybody yet. Raises UsageError for a writer that cannot be one."""
        work = Work(client, key_of_all(attempt.writer), attempt.version, compression=self.compression)
        return StagingSink(client, work, attempt, self.batch_bytes)

    def commit(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """One publication for each partition, of the slices in their order. What is published already is done.

        Raises UnknownStage if a partition has lost what was put aside, UsageError if it was put aside by too many tasks.
        """
        wanted: dict[Place, list[tuple[str, int]]] = {}
        for one in sorted(messages, key=lambda one: one.attempt.slice):
            for topic, partition, pieces in one.pieces:
                wanted.setdefault((topic, partition), []).append((one.name, pieces))
        if not wanted:
            return
        (topic, partition), most = max(wanted.items(), key=lambda item: len(item[1]))
        if len(most) > ATTEMPTS_MAX:
            raise UsageError(
                f"{len(most)} tasks have written to {topic}-{partition}; one publication takes {ATTEMPTS_MAX} at most: "
                "write fewer, larger Spark partitions (coalesce), or with deliveryGuarantee exactly-once"
            )
        work = Work(client, key_of_all(messages[0].attempt.writer), version)
        try:
            for place, attempts in sorted(wanted.items()):
                work.publish(place, attempts)
            work.finish()
        except BaseException:
            work.give_up()
            raise

    def abort(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """What was put aside expires; what was published stays."""


class StagingSink(PieceSink):
    """Puts everything aside."""

    def finish(self) -> Written:
        """All of it is with the leaders."""
        for place, rest in self._filling.rest():
            self._stage(place, rest)
        self._work.finish()
        return self._told(name=self._name, pieces=counted(self._pieces))
