"""A batch read: a snapshot, whose ends are looked up once, when Spark plans the first action on a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from attrs import evolve
from pyspark.sql.datasource import DataSourceReader, InputPartition

from replog.model import PartitionId, TopicPartition
from replog.spark.columns import check_read_schema
from replog.spark.connections import ClusterReplaced
from replog.spark.losses import Losses
from replog.spark.offsets import Positions
from replog.spark.options import ReadOptions
from replog.spark.planning import OffsetRange, split
from replog.spark.positions import Held, Lookup, check_led
from replog.spark.sentences import in_a_sentence
from replog.spark.shipping import Shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchReading", "read_partition", "tasks"]

_NOTHING: Final = Held(PartitionId(b"", 0, 0), 0, 0, -1)
"""Of a task that has nothing to read."""


class BatchReading(Shipped, DataSourceReader):
    """Reads from one position to another, in every partition. Made where Spark plans, and copied to each task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema, headers=options.include_headers)
        self._options = options

    def partitions(self) -> list[InputPartition]:  # Spark refuses any other sequence
        """One for each task. Called once per DataFrame: every action on it sees the same offsets."""
        with in_a_sentence():
            try:
                return self._planned(Lookup(self._options))
            except ClusterReplaced:  # nothing is read yet: the plan is one of the cluster that is there now
                return self._planned(Lookup(self._options))

    def _planned(self, lookup: Lookup) -> list[InputPartition]:
        options = self._options
        lookup.catch_up()
        places = lookup.places(must_exist=True)
        options.start.check_named(places)
        options.end.check_named(places)
        bounds = [options.start.of(place) + options.end.of(place) for place in places]
        wanted = {place: max(first or 0, last or 0) for place, (first, _, last, _) in zip(places, bounds, strict=True)}
        held, deposed = lookup.confirmed(lookup.held(places), None if options.subscription.assigned else wanted)
        check_led(deposed)
        start, stop = lookup.resolved(options.start, held), lookup.resolved(options.end, held)
        return tasks(options, held, start, stop, Losses(fail=options.fail_on_data_loss))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_partition(self._options, partition, anew=True)


def read_partition(options: ReadOptions, partition: InputPartition, *, anew: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows of one task; `anew` is that of `read_range`. Imports what it needs here: what plans needs none of it."""
    from replog.spark.ranges import read_range

    one = partition.value
    if one is not None:  # a task that has nothing to read any more; Spark makes one where there is none at all
        with in_a_sentence():
            yield from read_range(options, one, anew=anew)


def tasks(
    options: ReadOptions, held: Mapping[TopicPartition, Held], start: Positions, stop: Positions, losses: Losses
) -> list[InputPartition]:
    """The ranges [start, stop) of all places in `stop`, cut as the options say, each as far as it is held; what is not is a loss.

    They are cut by their offsets alone, and a task of which nothing is held any more keeps its number, with nothing to read: what is
    planned again is sliced as before, whatever retention has done in between, and a writer tells its slices by their numbers.
    """
    kept = {one.place: one for one in _within(held, start, stop, losses)}
    whole = []
    for place in sorted(stop):
        has = held.get(place, _NOTHING)
        whole.append(OffsetRange(place, has.identity, start[place], max(start[place], stop[place]), has.leader_epoch, has.known_at))
    pieces = split(whole, options.min_partitions, options.max_records_per_partition)
    return [InputPartition(_clipped(piece, kept.get(piece.place))) for piece in pieces]


def _clipped(piece: OffsetRange, kept: OffsetRange | None) -> OffsetRange | None:
    if kept is None:
        return None
    first, last = max(piece.start, kept.start), min(piece.stop, kept.stop)
    return evolve(piece, start=first, stop=last) if first < last else None


def _within(held: Mapping[TopicPartition, Held], start: Positions, stop: Positions, losses: Losses) -> list[OffsetRange]:
    ranges = []
    for place in sorted(held):
        has, first, last = held[place], start[place], stop[place]
        if first < has.start and first < last:
            losses.lost(place, first, min(has.start, last), f"the partition begins at offset {has.start} by now")
            first = min(has.start, last)
        if last > has.latest:
            losses.lost(place, max(first, has.latest), last, f"the partition ends before offset {has.latest}")
            last = has.latest
        if first > has.latest:
            losses.lost(place, has.latest, first, f"the partition ends before offset {has.latest}")
        ranges.append(OffsetRange(place, has.identity, first, max(first, last), has.leader_epoch))
    return ranges
