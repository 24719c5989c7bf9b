"""What becomes of the rows of a job whose tasks Spark may run again: one strategy object per guarantee.

The writers (`foreachPartition`, batch, stream) know nothing of guarantees. On an executor they `begin` an attempt, `add` records to the
sink and `finish`, which gives the message for the driver; on the driver they `commit` the messages of the attempts that Spark chose, or
`abort`. Whoever is killed does neither: nothing may depend on a sink being told the end of its task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from attrs import define, field, frozen

from replog.client.arguments import check_choice, parse_acks
from replog.client.client import Client
from replog.errors import UsageError
from replog.spark.appending import Appender
from replog.spark.cells import RECORDS_MAX, Cells, Placed
from replog.spark.connections import Connection

__all__ = [
    "BATCH_BYTES",
    "GUARANTEES",
    "AtLeastOnce",
    "Attempt",
    "Delivery",
    "Guarantee",
    "Sink",
    "Written",
    "batch_bytes_of",
    "check_guarantee",
    "delivery_of",
]

Guarantee = Literal["exactly-once", "atomic", "at-least-once"]
BATCH_BYTES: Final = 1 << 20
"""What a batch holds unless the configuration says otherwise: tasks write in bulk, and wait for nobody's single record."""
GUARANTEES: Final[tuple[Guarantee, ...]] = ("exactly-once", "atomic", "at-least-once")


@frozen
class Attempt:
    """One attempt of Spark at one slice of a job: who would write the same rows again under the same names."""

    writer: str
    """The same whenever the job runs again: id of a stream, of a batch job, or what the user calls it."""
    version: int
    """Grows with each run of that writer: the id of a stream's micro-batch."""
    slice: int
    """Spark's number of the partition; with the writer, the key under which a broker may remember versions."""
    attempt: int
    """Unique among the attempts of one Spark application: never the attempt's number, which stage retries use again."""


@frozen
class Written:
    """What a finished attempt tells the driver."""

    attempt: Attempt
    records: int
    places: tuple[tuple[str, int, int], ...]
    """(topic, partition, records) of each partition written to, sorted."""


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
        """On the driver: none counts. May follow a `commit` that took effect: it drops what was never published, and undoes nothing."""


# ------------------------------------------------------------------------------------------------------- at least once


@frozen
class AtLeastOnce:
    """Rows are appended as they come. An attempt that is repeated appends them again, and so does a job that is run again."""

    acks: int
    compression: Literal["lz4"] | None
    batch_bytes: int
    """Cells in one batch, unless the topic allows less, or a single record has more."""

    def begin(self, client: Client, attempt: Attempt) -> AppendingSink:
        """Nothing is asked of anybody yet."""
        appender = Appender(client, acks=self.acks, compression=self.compression)
        return AppendingSink(appender, attempt, self.batch_bytes, client._core.config.buffer_bytes // 2)

    def commit(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """Everything is in the log already."""

    def abort(self, client: Client, messages: Sequence[Written], version: int) -> None:
        """What is in the log stays there."""


@define
class _Open:
    """The batch of one partition that is being filled."""

    several: list[Cells] = field(factory=list)
    records: int = 0
    size: int = 0


class AppendingSink:
    """Fills one batch per partition, and appends it when it is full."""

    def __init__(self, appender: Appender, attempt: Attempt, batch_bytes: int, open_bytes_max: int) -> None:
        self._appender = appender
        self._attempt = attempt
        self._batch_bytes = batch_bytes
        self._open_bytes_max = open_bytes_max
        self._open: dict[tuple[str, int], _Open] = {}
        self._open_bytes = 0
        self._records: dict[tuple[str, int], int] = {}

    def add(self, placed: Placed) -> None:
        """Into the open batch; a full one leaves. When all open ones together are too large, the largest leaves."""
        place, cells = (placed.topic, placed.partition), placed.cells
        found = self._open.get(place)
        limit = min(self._batch_bytes, self._appender.room_in_a_batch(placed.topic))
        if found is not None and (found.size + cells.size > limit or found.records + cells.records > RECORDS_MAX):
            self._send(place)
            found = None
        if found is None:
            found = self._open[place] = _Open()
        found.several.append(cells)
        found.records += cells.records
        found.size += cells.size
        self._open_bytes += cells.size
        self._records[place] = self._records.get(place, 0) + cells.records
        if found.size >= limit:
            self._send(place)
        while self._open_bytes > self._open_bytes_max:
            self._send(max(self._open, key=lambda one: self._open[one].size))

    def finish(self) -> Written:
        """Append what is left, and wait for every acknowledgement."""
        for place in list(self._open):
            self._send(place)
        self._appender.finish()
        places = tuple(sorted((topic, partition, count) for (topic, partition), count in self._records.items()))
        return Written(self._attempt, sum(self._records.values()), places)

    def abandon(self) -> None:
        """What was appended stays; the rest is forgotten."""
        self._open.clear()
        self._appender.give_up()

    def _send(self, place: tuple[str, int]) -> None:
        found = self._open.pop(place)
        self._open_bytes -= found.size
        self._appender.append(*place, found.several)


# ------------------------------------------------------------------------------------------------------------- choosing

_STRATEGIES: Final[dict[Guarantee, type[AtLeastOnce]]] = {"at-least-once": AtLeastOnce}


def check_guarantee(guarantee: object, name: str) -> Guarantee:
    """One that can be had. Raises UsageError naming those."""
    check_choice(name, guarantee, GUARANTEES)
    for known in _STRATEGIES:
        if guarantee == known:
            return known
    raise UsageError(f"{name} is {guarantee!r}; allowed is {', '.join(map(repr, _STRATEGIES))}")


def batch_bytes_of(connection: Connection) -> int:
    """Cells that a batch is to hold."""
    return dict(connection.settings).get("batch_bytes", BATCH_BYTES)


def delivery_of(guarantee: Guarantee, *, acks: object, compression: Literal["lz4"] | None, batch_bytes: int) -> Delivery:
    """The strategy of a guarantee. Raises UsageError."""
    return _STRATEGIES[guarantee](parse_acks(acks), check_choice("compression", compression, ("lz4", None)), batch_bytes)
