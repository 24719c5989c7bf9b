"""A batch read: a snapshot, whose ends are looked up once, when Spark plans the first action on a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from replog.model import TopicPartition
from replog.spark.columns import check_read_schema
from replog.spark.losses import Losses
from replog.spark.offsets import Positions
from replog.spark.options import ReadOptions
from replog.spark.planning import OffsetRange, split
from replog.spark.positions import Held, Lookup
from replog.spark.sentences import in_a_sentence
from replog.spark.shipping import Shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BatchReading", "read_partition", "within"]


class BatchReading(Shipped, DataSourceReader):
    """Reads from one position to another, in every partition. Made where Spark plans, and copied to each task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema, headers=options.include_headers)
        self._options = options

    def partitions(self) -> list[InputPartition]:  # Spark refuses any other sequence
        """One for each task. Called once per DataFrame: every action on it sees the same offsets."""
        with in_a_sentence():
            return self._planned(Lookup(self._options))

    def _planned(self, lookup: Lookup) -> list[InputPartition]:
        options = self._options
        places = lookup.places(must_exist=True)
        options.start.check_named(places)
        options.end.check_named(places)
        held = lookup.held(places)
        start, stop = lookup.resolved(options.start, held), lookup.resolved(options.end, held)
        ranges = within(held, start, stop, Losses(fail=options.fail_on_data_loss))
        return [InputPartition(one) for one in split(ranges, options.min_partitions, options.max_records_per_partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_partition(self._options, partition)


def read_partition(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task. Imports what it needs here: what plans needs none of it."""
    from replog.spark.ranges import read_range

    one = partition.value
    if one is not None:  # Spark makes a task of None where there is nothing to read
        with in_a_sentence():
            yield from read_range(options, one)


def within(held: Mapping[TopicPartition, Held], start: Positions, stop: Positions, losses: Losses) -> list[OffsetRange]:
    """The ranges [start, stop) as far as they are held; what is not is a loss."""
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
