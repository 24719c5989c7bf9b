"""What becomes of the rows of a job whose tasks Spark may run again: one strategy object per guarantee (`replog.spark.guarantees`).

The writers (`foreachPartition`, batch, stream) know nothing of guarantees. On an executor they `begin` an attempt, `add` records to the
sink and `finish`, which gives the message for the driver; on the driver they `commit` the messages of the attempts that Spark chose, or
`abort`. Whoever is killed does neither: nothing may depend on a sink being told the end of its task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from attrs import frozen

from replog.client.client import Client
from replog.spark.cells import Placed

__all__ = ["GUARANTEES", "Attempt", "Delivery", "Guarantee", "Place", "Sink", "Written"]

Guarantee = Literal["exactly-once", "atomic", "at-least-once"]
GUARANTEES: Final[tuple[Guarantee, ...]] = ("exactly-once", "atomic", "at-least-once")
Place = tuple[str, int]
"""Topic and partition."""


@frozen
class Attempt:
    """One attempt of Spark at one slice of a job: who would write the same rows again under the same names."""

    writer: str
    """The same whenever the job runs again: id of a stream, of a batch job, or what the user calls it."""
    version: int
    """Grows with each run of that writer: the id of a stream's micro-batch."""
    slice: int
    """Spark's number of the partition."""
    attempt: int
    """Unique among the attempts of one Spark application: never the attempt's number, which stage retries use again."""


@frozen
class Written:
    """What a finished attempt tells the driver."""

    attempt: Attempt
    records: int
    places: tuple[tuple[str, int, int], ...]
    """(topic, partition, records) of each partition written to, sorted."""
    name: str = ""
    """Under which pieces were put aside; empty if the driver has nothing to publish."""
    pieces: tuple[tuple[str, int, int], ...] = ()
    """(topic, partition, number of pieces) that the driver is to publish, sorted."""


class Sink(Protocol):
    """Takes the records of one attempt."""

    def add(self, placed: Placed) -> None:
        """More records. May wait, so that memory stays bounded. Raises what the cluster refused, perhaps of earlier ones."""

    def finish(self) -> Written:
        """All records were added; wait until they are as safe as the guarantee says."""

    def abandon(self) -> None:
        """The attempt has failed. Best effort: a killed task calls nothing."""


class Delivery(Protocol):
    """A guarantee. Picklable: it travels with its writer."""

    def begin(self, client: Client, attempt: Attempt) -> Sink:
        """On an executor, once per attempt."""

    def commit(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """On the driver: these attempts, one per slice, are the ones that count. May come again with the same messages."""

    def abort(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """On the driver: none counts. May follow a `commit` that took effect: it undoes nothing."""
