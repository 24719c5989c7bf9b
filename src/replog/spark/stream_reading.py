"""A streaming read: where it begins, how far each micro-batch goes, and what is noticed when records are gone.

Spark keeps offsets as plain JSON in its checkpoint, in the shape of its Kafka connector: partitions and offsets, nothing else. A
micro-batch is planned from them alone, so that a replay reads what the first try read. Which log an offset belongs to (the id of the
topic), and under which leader epoch it was committed, is remembered by the reader of a running query, and not across restarts:
what this finds is told in `docs/spark.md`.

Where a log was replaced, offsets may go back. A micro-batch whose end is below its start reads nothing in that partition; with
`failOnDataLoss` it fails, however often it is planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from replog.errors import Code, ReplogError, TimedOut, rejection
from replog.model import PartitionId, TopicPartition
from replog.spark.batch_reading import read_partition, tasks
from replog.spark.columns import check_read_schema
from replog.spark.losses import Losses
from replog.spark.offsets import Positions, from_offsets, to_offsets
from replog.spark.options import ReadOptions
from replog.spark.planning import by_bytes, by_records
from replog.spark.positions import Held, Lookup, check_led
from replog.spark.sentences import in_a_sentence
from replog.spark.shipping import Shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["Refused", "StreamReading"]

_GONE: Final = "the topic or the partition does not exist any more"
_SHORT: Final = "the partition ended before the offset that was given, or was replaced or cut, found before the query was started again"
_LEFT: Final = "the topic or the partition did not exist any more, or was left out, before the query was started again"
_REPLACED: Final = "the topic was deleted and created again, or the partition removed and added again"


class Refused(DataSourceStreamReader):
    """In the place of a reader whose options are wrong: says so as soon as it is asked anything."""

    def __init__(self, error: ReplogError) -> None:
        self._error = error

    @in_a_sentence()
    def initialOffset(self) -> dict[str, Any]:
        """Raises."""
        raise self._error

    @in_a_sentence()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Raises."""
        raise self._error

    @in_a_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises."""
        raise self._error

    @in_a_sentence()
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises."""
        raise self._error


class _Seen(NamedTuple):
    """The log that the offsets of a partition were of when it was last asked for, and the leader epoch then."""

    identity: PartitionId
    leader_epoch: int


class StreamReading(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one run of a query. Its questions are asked in one process of the driver's host; `read` runs in tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema, headers=options.include_headers)
        self._options = options
        self._losses = Losses(fail=options.fail_on_data_loss)
        self._seen: dict[TopicPartition, _Seen] = {}
        self._initial: Positions | None = None
        self._begun = False
        self._target: Positions | None = None
        """Where an `availableNow` run ends."""
        self._reported: Positions = {}
        self._noted: dict[TopicPartition, tuple[int, int, str]] = {}
        """Losses that this run has found, the offsets and why: the next plan is to fail with them, or they were logged."""

    # ------------------------------------------------------------------------------------------------------- offsets

    @in_a_sentence()
    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. Spark asks twice, and must hear the same."""
        if self._initial is None:
            options, lookup = self._options, Lookup(self._options)
            places = lookup.places(must_exist=True)
            options.start.check_named(places)
            held = lookup.held(places)
            self._initial = lookup.resolved(options.start, held)
            self._see(held)
        return to_offsets(self._initial)

    @in_a_sentence()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends."""
        begin = from_offsets(start)
        if self._begins_empty(begin):
            return start
        held = self._held()
        held, deposed = Lookup(self._options).confirmed(held, begin)
        self._heard(begin, held, deposed)
        missing = self._named(begin, begin.keys() - held.keys())
        unheard = Lookup(self._options).unheard(missing)
        if self._target is not None:
            _check_heard(unheard)  # there may be no next time
        for place in sorted(missing - unheard):
            self._found(place, begin[place], begin[place], _GONE)
        kept = unheard | deposed  # nobody who can be believed has said anything of these: they stay as they are
        held = Lookup(self._options).reaching({place: has for place, has in held.items() if place not in deposed}, begin)
        back, doubted = self._replaced(begin, held)
        self._see({place: has for place, has in held.items() if place not in doubted})
        if back:
            return to_offsets({place: back.get(place, begin[place]) for place in begin if place in held or place in kept})
        latest = self._latest(begin, held) | {place: begin[place] for place in doubted}
        first = {place: max(begin.get(place, 0), held[place].start) for place in latest}
        return to_offsets(self._limited(first, latest, limit, held) | {place: begin[place] for place in kept})

    def getDefaultReadLimit(self) -> ReadLimit:
        """What a micro-batch is limited to. Spark takes one limit; with both options, `latestOffset` keeps to the second by itself."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @in_a_sentence()
    def prepareForTriggerAvailableNow(self) -> None:
        """The run that begins ends with what is there now, as those say who lead now. Raises LeaderNotAvailable where none of them has."""
        held = self._held()
        held, deposed = Lookup(self._options).confirmed(held, None)
        check_led(deposed)
        self._target = {place: has.latest for place, has in held.items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends that were last heard of: what is beyond the offset of the micro-batch is the lag."""
        return to_offsets(self._reported) or None

    # ----------------------------------------------------------------------------------------------------- partitions

    @in_a_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of the micro-batch between two offsets; after a restart for the one that was under way."""
        begin, stop = from_offsets(start), from_offsets(end)
        self._begun = True
        self._check_back(begin, stop)
        lookup = Lookup(self._options)
        held = lookup.held(sorted(stop))
        kept: dict[TopicPartition, Held] = {}
        stop = {place: offset for place, offset in stop.items() if begin.get(place, offset) < offset}  # a new one: see `_latest`
        held, deposed = lookup.confirmed(held, stop)
        check_led(deposed)
        held = lookup.reaching(held, stop)
        _check_heard(lookup.unheard(stop.keys() - held.keys()))
        for place in sorted(stop):
            has, seen, first = held.get(place), self._seen.get(place), begin[place]
            if has is None:
                self._losses.lost(place, first, stop[place], _GONE)
            elif seen is not None and seen.identity != has.identity:
                self._losses.lost(place, first, stop[place], _REPLACED)
            else:
                # Under the epoch in which the end was looked up: if another one has begun since, tasks find out what that means.
                kept[place] = has if seen is None else has._replace(leader_epoch=seen.leader_epoch)
        self._see(kept)
        return tasks(self._options, kept, begin, stop, self._losses)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_partition(self._options, partition)

    # ------------------------------------------------------------------------------------------------------- internal

    def _held(self) -> dict[TopicPartition, Held]:
        lookup = Lookup(self._options)
        return lookup.held(lookup.places(must_exist=False))

    def _heard(self, begin: Positions, held: Mapping[TopicPartition, Held], deposed: set[TopicPartition]) -> None:
        """What there is, for the report, and for a run that ends with it: a deposed leader may have said where. Raises LeaderNotAvailable
        where nobody else has said it yet, and there may be no next time."""
        self._reported = {place: begin[place] if place in deposed else has.latest for place, has in held.items()}
        if self._target is not None:
            check_led(deposed)
            there = begin.keys() & held.keys()  # one without a target was not heard of when the run began, and was there
            behind = [place for place in there if place not in self._target or self._target[place] < begin[place]]
            self._target.update({place: held[place].latest for place in behind})

    def _see(self, held: Mapping[TopicPartition, Held]) -> None:
        self._seen.update({place: _Seen(has.identity, has.leader_epoch) for place, has in held.items()})

    def _found(self, place: TopicPartition, first: int, stop: int, why: str, *, goes_back: bool = True) -> None:
        """Something is lost, and the offset goes back, or leaves the partition out. Where that is to fail, it does with the plan: by then
        Spark has written the offset, so that a query that is started again, and remembers nothing, fails there again."""
        if self._options.fail_on_data_loss and goes_back:
            self._noted[place] = first, stop, why
        else:
            self._losses.lost(place, first, stop, why)
            self._noted[place] = first, stop, why

    def _named(self, begin: Positions, places: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of the partitions that the options still name. Raises DataLost for another one: before its micro-batch is in the
        checkpoint, so that the query goes on there once it is named again."""
        subscription = self._options.subscription
        named = {place for place in places if subscription.reads(place)}
        for place in sorted(set(places) - named):
            self._losses.left_out(place, begin[place], subscription.option)
            self._noted[place] = begin[place], begin[place], _LEFT
        return named

    def _check_back(self, begin: Positions, stop: Positions) -> None:
        """Raises DataLost for an offset that has gone back, or logs it, where a run before this one has found that.

        Of the first micro-batch Spark has kept the end alone: when it is replayed, where the query begins is asked again. If it is empty,
        that may be behind this end. And a partition that was added since is not in this end: it is new, and nothing was read of it.
        """
        is_first = begin == self._initial and not self._options.start.is_fixed and not self._noted
        for place in sorted(begin) if not is_first else ():
            offset, back = begin[place], stop.get(place, -1)
            if back >= offset:
                continue
            if place in self._noted:
                if self._options.fail_on_data_loss:
                    self._losses.lost(place, *self._noted[place])
            elif place not in stop:
                if begin != self._initial:
                    self._losses.lost(place, offset, offset, _LEFT)
            elif begin == self._initial:  # nothing was read yet, and the offset may never have been there
                self._losses.lost(place, back, offset, _SHORT)
            else:
                self._losses.went_back(place, offset, back)

    def _begins_empty(self, begin: Positions) -> bool:
        """Whether the first micro-batch is to be empty.

        If it failed, its replay would ask again where it begins. Where that is a word or a time, what was written meanwhile, or what
        retention took away, would be skipped, and the slices of the rest be numbered anew, so that a writer would take them for those
        that it has. An empty one has nothing to replay; the next ones begin at an offset that is in the checkpoint.
        """
        is_first = not self._begun and not self._options.start.is_fixed and begin == self._initial
        self._begun = True
        return is_first

    def _replaced(self, begin: Positions, held: Mapping[TopicPartition, Held]) -> tuple[Positions, set[TopicPartition]]:
        """Where to go on in logs that do not have any more what was read; each is a loss. Nothing is read twice there: in another log, and
        above the place where the old one was cut, everything is new.

        And of which partitions nobody says where the epoch of what was read ends: nothing is read of them, and the question is asked
        again the next time. Raises TimedOut for one in a run that ends with what is there: there may be no next time.
        """
        newer = {
            place: (has.identity, seen.leader_epoch)
            for place, has in held.items()
            if place in begin and (seen := self._seen.get(place)) and seen.identity == has.identity and seen.leader_epoch < has.leader_epoch
        }
        ends = Lookup(self._options).epoch_ends(newer)
        back: Positions = {}
        doubted = newer.keys() - ends.keys()
        if doubted and self._target is not None:
            waited = f"waited {self._options.fetch_timeout_ms / 1000:g} s (replog.fetch.timeout.ms)"
            raise TimedOut(f"{waited} for the leader of {min(doubted)} to say where the epoch before its own ends")
        for place in sorted(begin.keys() & held.keys()):
            has, offset, seen = held[place], begin[place], self._seen.get(place)
            cut = ends.get(place, offset)
            kept = has.start if cut is None else cut
            if seen is not None and seen.identity != has.identity:
                back[place] = has.start
                self._found(place, offset, offset, _REPLACED, goes_back=has.start < offset)
            elif kept < offset:
                back[place] = kept
                self._found(place, kept, offset, "an unclean election removed them")
            elif has.latest < offset:
                back[place] = has.latest
                self._found(place, has.latest, offset, f"the partition ends before offset {has.latest}: {_REPLACED}")
        return back, set(doubted)

    def _latest(self, begin: Positions, held: Mapping[TopicPartition, Held]) -> Positions:
        """The ends of what there is, or of what this run is to read.

        A partition that is new is in one micro-batch with nothing to read: so its beginning is in the checkpoint, and the next one is
        planned in the same way however often.
        """
        latest: Positions = {}
        for place, has in held.items():
            if place not in begin and (self._target is None or place in self._target):
                latest[place] = has.start
            elif self._target is None:
                latest[place] = has.latest
            elif place in begin:
                latest[place] = max(min(has.latest, self._target[place]), begin[place])
        return latest

    def _limited(self, begin: Positions, latest: Positions, limit: ReadLimit, held: Mapping[TopicPartition, Held]) -> Positions:
        ends = latest
        max_bytes = None
        if isinstance(limit, ReadMaxRows):
            ends = by_records(begin, ends, limit.max_rows)
            max_bytes = self._options.max_bytes_per_trigger
        elif isinstance(limit, ReadMaxBytes):
            max_bytes = limit.max_bytes
        if max_bytes is not None:
            behind = {place: (held[place], begin[place]) for place in ends if ends[place] > begin[place]}
            ends = by_bytes(begin, ends, max_bytes, Lookup(self._options).record_bytes(behind))
        return ends


def _check_heard(unheard: set[TopicPartition]) -> None:
    """Raise LeaderNotAvailable if there are partitions that only the controller has heard of (see `Lookup.unheard`)."""
    if unheard:
        text = f"the broker that was asked does not know {min(unheard)}, which is there, or is being deleted; start the query again"
        raise rejection(Code.LEADER_NOT_AVAILABLE, text, topic=min(unheard).topic, partition=min(unheard).partition)
