"""What the cluster is asked before anything is read: which partitions there are, what they hold, and where times are."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from replog.client.client import Client
from replog.client.operations import AT_EARLIEST, AT_LATEST, AdminOp, MetadataOp, PartitionOp
from replog.errors import (
    ClusterAuthorizationFailed,
    Code,
    InvalidRequest,
    OffsetOutOfRange,
    Rejected,
    UnknownTopicOrPartition,
    rejection,
)
from replog.messages import Epochs, EpochsEntry, ListedOffset, OffsetsForLeaderEpoch
from replog.model import PartitionId, TopicPartition
from replog.spark.existing import PlaceOffsetOp, partitions_of
from replog.spark.fetching import RangeFetchOp
from replog.spark.offsets import Bound, Positions
from replog.spark.options import ReadOptions
from replog.spark.planning import OffsetRange

__all__ = ["Held", "Lookup", "check_led"]

T = TypeVar("T")

_SAMPLE_BYTES: Final = 64 << 10
_RECORD_BYTES: Final = 1 << 10
"""Where nothing could be looked at: whatever stands in the way is found by the task."""


class Held(NamedTuple):
    """What a partition holds, as its leader said: committed records are those of [start, latest)."""

    identity: PartitionId
    start: int
    latest: int
    leader_epoch: int
    known_at: tuple[int, int] = (-1, -1)
    """Controller epoch and version of the view in which it was there."""


class EpochEndOp(PartitionOp):
    """Ask the leader where an epoch ends in its log. Result: offset after its last record; None: it knows no epoch as old."""

    def __init__(self, place: TopicPartition, epoch: int, deadline_ms: int, expected: PartitionId) -> None:
        super().__init__(f"where leader epoch {epoch} ends", place.topic, place.partition, deadline_ms, expected)
        self._epoch = epoch

    def message(self, core: object) -> OffsetsForLeaderEpoch:
        """One entry."""
        assert self.place is not None
        return OffsetsForLeaderEpoch(self.request, [EpochsEntry(self.place.identity, self.place.leader_epoch, self._epoch)])

    def answered(self, core: object, answer: object, now_ms: int) -> int:
        """The end, or why there is none."""
        if isinstance(answer, Epochs) and self.place is not None:
            for result in answer.entries:
                if result.partition == self.place.identity:
                    if result.error == Code.NONE:
                        self.finish(None if result.epoch < 0 else result.end_offset)
                    return result.error
        return Code.UNKNOWN_TOPIC_ID


class Lookup:
    """What one reader asks the cluster. Each raises Unavailable if it has no answer within `fetch_timeout_ms`.

    A refusal that another try can overcome is asked about again, as `fetchOffset.numRetries` has it.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def catch_up(self) -> None:
        """Know the cluster as the controller does, which has made sure that it is the controller: the broker that is asked may be late, and
        whoever reads only once would leave out what that one has not heard of. Partitions that are named one by one need none of this.

        Raises Unavailable if no controller answers, or no broker has heard of so much. One of a version that does not know this question
        leaves whoever is asked believed.
        """
        if self._options.subscription.assigned:
            return
        with self._options.connection.explained() as client:
            deadline_ms = client._deadline(self._timeout_s)
            asked = AdminOp("find_view", {}, deadline_ms)
            client._do_all([asked])
            if isinstance(asked.error, InvalidRequest | ClusterAuthorizationFailed):
                return
            if asked.error is not None:
                raise asked.error
            newest = asked.result["controller_epoch"], asked.result["version"]
            what = "the question for a view of the cluster as new as the controller's"
            client._do(MetadataOp(deadline_ms, until=lambda view: (view.controller_epoch, view.version) >= newest, what=what))

    def places(self, *, must_exist: bool) -> list[TopicPartition]:
        """The partitions that are read and exist now, sorted.

        `must_exist`: raise UnknownTopicOrPartition for a topic or partition that is named and does not exist.
        """
        wished = self._options.subscription
        if wished.pattern is not None:
            matching = re.compile(wished.pattern).fullmatch
            return self._again(lambda client: self._places(client, filter(matching, client.topics(timeout_s=self._timeout_s)), False))
        if not wished.assigned:
            return self._again(lambda client: self._places(client, wished.topics, must_exist))
        there = self._again(lambda client: self._places(client, [topic for topic, _ in wished.assigned], must_exist))
        places = sorted(TopicPartition(topic, number) for topic, numbers in wished.assigned for number in numbers)
        for place in places:
            if must_exist and place not in there:
                numbers = ", ".join(str(one.partition) for one in there if one.topic == place.topic)
                text = f"option assign names partition {place.partition} of topic {place.topic!r}; it has {numbers}"
                raise rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, text, topic=place.topic, partition=place.partition)
        return [place for place in places if place in there]

    def _places(self, client: Client, topics: Iterable[str], must_exist: bool) -> list[TopicPartition]:
        found = partitions_of(client, topics, self._timeout_s, must_exist=must_exist)
        return sorted(TopicPartition(topic, number) for topic, numbers in found.items() for number in numbers)

    def held(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Held]:
        """What each partition holds; those that do not exist are left out."""
        return self._again(lambda client: self._held(client, list(places)))

    def _held(self, client: Client, places: list[TopicPartition]) -> dict[TopicPartition, Held]:
        found = {}
        asked = self._ask(client, {place: AT_LATEST for place in places})
        known_at = client._core.view.controller_epoch, client._core.view.version
        for place, op in asked.items():
            if isinstance(op.error, UnknownTopicOrPartition):
                continue
            if op.error is not None:
                raise op.error
            listed: ListedOffset = op.result
            assert op.place is not None
            found[place] = Held(op.place.identity, listed.start_offset, listed.offset, listed.leader_epoch, known_at)
        return found

    def unheard(self, places: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Of partitions that nobody knew, those that the controller has: the broker that was asked is late, or they are being deleted.
        Raises Unavailable if no controller answers."""
        found = self._found({place.topic: {} for place in places})
        return {place for place in places if place.topic in found and place.partition < found[place.topic]["partitions"]}

    def _found(self, topics: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """What the controller says of each topic, and of what else is asked about it; those that do not exist are left out."""
        if not topics:
            return {}
        with self._options.connection.explained() as client:
            deadline_ms = client._deadline(self._timeout_s)
            ops = {topic: AdminOp("find_topic", {"name": topic, **more}, deadline_ms) for topic, more in sorted(topics.items())}
            client._do_all(ops.values())
        for op in ops.values():
            if op.error is not None and not isinstance(op.error, UnknownTopicOrPartition):
                raise op.error
        return {topic: op.result for topic, op in ops.items() if op.error is None}

    def confirmed(
        self, held: Mapping[TopicPartition, Held], wanted: Positions | None
    ) -> tuple[dict[TopicPartition, Held], set[TopicPartition]]:
        """The same, and those of them that are not to be believed: less is there than wanted, and whoever said so leads no longer. None
        wants all that there is: nobody is believed unasked.

        A leader that was replaced and does not know it yet answers as before (KIP-320), and a client that is new knows no better. The
        controller does: then the leader of now is asked, as often as a refusal is asked about again. Raises Unavailable if no controller
        answers. One of a version that does not say who leads leaves whoever has answered believed.
        """
        found, doubted = dict(held), self._deposed(held, wanted)
        for _ in range(self._options.offset_retries):
            if not doubted:
                break
            self._pause()
            again = self.held(doubted)
            found.update(again)
            doubted = (doubted - again.keys()) | self._deposed(again, wanted)
        return found, doubted

    def _deposed(self, held: Mapping[TopicPartition, Held], wanted: Positions | None) -> set[TopicPartition]:
        behind: dict[str, list[int]] = {}
        for (topic, number), has in held.items():
            if wanted is None or has.latest < wanted.get(TopicPartition(topic, number), 0):
                behind.setdefault(topic, []).append(number)
        said = self._found({topic: {"leaders": numbers} for topic, numbers in behind.items()})
        deposed = set()
        for topic, numbers in behind.items():
            if topic in said and "leaders" not in said[topic]:
                continue
            leading = _leading(said[topic]) if topic in said else {}
            for place in (TopicPartition(topic, number) for number in numbers):
                identity, epoch, leader = leading.get(place.partition, (None, -1, None))
                if (identity, epoch) != (held[place].identity, held[place].leader_epoch):
                    deposed.add(place)
                    self._hint(identity, leader, epoch)
        return deposed

    def _hint(self, identity: PartitionId | None, leader: int | None, leader_epoch: int) -> None:
        """So that this client asks the leader of now, whatever the next broker says that it asks who leads."""
        if identity is not None and leader is not None:
            with self._options.connection.explained() as client, client._driver.lock, client._driver.changing:
                client._core.view.hint(identity, leader, leader_epoch)

    def resolved(self, bound: Bound, held: Mapping[TopicPartition, Held]) -> Positions:
        """Where a bound is in each of these partitions. An offset is taken as given: it may lie outside of what is held.

        Raises UsageError for a partition that the bound does not name, OffsetOutOfRange for a time after the last record.
        """
        wanted = {place: bound.of(place) for place in held}
        times = {place: at for place, (offset, at) in wanted.items() if offset is None and at is not None and (bound.is_time or at >= 0)}
        found = self._again(lambda client: self._times(client, times)) if times else {}
        positions = {}
        for place, (offset, at) in wanted.items():
            if offset is not None:
                positions[place] = offset
            elif place not in times:
                positions[place] = held[place].start if at == AT_EARLIEST else held[place].latest
            else:
                positions[place] = _at_time(bound, place, times[place], found[place], held[place])
        return positions

    def _times(self, client: Client, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = {}
        for place, op in self._ask(client, times).items():
            if op.error is not None:
                raise op.error
            listed: ListedOffset = op.result
            found[place] = listed.offset
        return found

    def epoch_ends(self, epochs: Mapping[TopicPartition, tuple[PartitionId, int]]) -> dict[TopicPartition, int | None]:
        """Where each partition's leader epoch ends in the log of its leader of now; those that cannot say are left out."""
        if not epochs:
            return {}
        with self._options.connection.explained() as client:
            deadline_ms = client._deadline(self._timeout_s)
            ops = {place: EpochEndOp(place, epoch, deadline_ms, identity) for place, (identity, epoch) in epochs.items()}
            client._do_all(ops.values())
        return {place: op.result for place, op in ops.items() if op.error is None}

    def reaching(self, held: Mapping[TopicPartition, Held], wanted: Positions) -> dict[TopicPartition, Held]:
        """The same, where what is wanted was committed before and a leader says that less is: a new one may not know yet how much is. Its
        log tells: as far as that reaches, nothing is gone. One that cannot say is believed to have it all; who reads it waits. That it
        leads is `confirmed` before."""
        behind = {place: (has.identity, has.leader_epoch) for place, has in held.items() if has.latest < wanted.get(place, 0)}
        ends = self.epoch_ends(behind)
        found = dict(held)
        for place in behind:
            end = ends.get(place, wanted[place])
            found[place] = held[place]._replace(latest=max(held[place].latest, min(wanted[place], 0 if end is None else end)))
        return found

    def record_bytes(self, behind: Mapping[TopicPartition, tuple[Held, int]]) -> dict[TopicPartition, float]:
        """The mean size of a record as it is stored, from the first batches at an offset of each partition."""
        if not behind:
            return {}
        with self._options.connection.explained() as client:
            deadline_ms = client._deadline(self._timeout_s)
            ops = {place: _sample(place, has, offset, deadline_ms) for place, (has, offset) in behind.items()}
            client._do_all(ops.values())
        found = {}
        for place, op in ops.items():
            batches = op.result.batches if op.error is None else []
            if batches:
                found[place] = sum(batch.length for batch in batches) / sum(batch.count for batch in batches)
        mean = sum(found.values()) / len(found) if found else _RECORD_BYTES
        return {place: found.get(place, mean) for place in behind}

    @property
    def _timeout_s(self) -> float:
        return self._options.fetch_timeout_ms / 1000

    def _ask(self, client: Client, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, PlaceOffsetOp]:
        """All leaders side by side: one round of questions."""
        deadline_ms = client._deadline(self._timeout_s)
        ops = {place: PlaceOffsetOp(place.topic, place.partition, at, deadline_ms) for place, at in wanted.items()}
        client._do_all(ops.values())
        return ops

    def _again(self, question: Callable[[Client], T]) -> T:
        for left in range(self._options.offset_retries, -1, -1):
            try:
                with self._options.connection.explained() as client:
                    return question(client)
            except Rejected as refusal:
                if not (left and refusal.retriable):
                    raise
            self._pause()
        raise AssertionError("unreachable")

    def _pause(self) -> None:
        threading.Event().wait(self._options.offset_retry_ms / 1000)


def check_led(doubted: Iterable[TopicPartition]) -> None:
    """Raise LeaderNotAvailable if the leader of any of these is not to be believed (see `Lookup.confirmed`)."""
    for place in sorted(doubted):
        text = f"{place} has another leader than the broker that answered, which was replaced and holds less than was asked for; try again"
        raise rejection(Code.LEADER_NOT_AVAILABLE, text, topic=place.topic, partition=place.partition)


def _leading(said: Mapping[str, Any]) -> dict[int, tuple[PartitionId, int, int | None]]:
    topic_id = bytes.fromhex(said["topic_id"])
    return {number: (PartitionId(topic_id, number, creation), epoch, leader) for number, creation, epoch, leader in said["leaders"]}


def _sample(place: TopicPartition, has: Held, offset: int, deadline_ms: int) -> RangeFetchOp:
    one = OffsetRange(place, has.identity, offset, has.latest, has.leader_epoch)
    return RangeFetchOp(
        one, offset, max_bytes=_SAMPLE_BYTES, wait_ms=0, deadline_ms=deadline_ms, known_epoch=has.leader_epoch, rack=None
    )


def _at_time(bound: Bound, place: TopicPartition, time: int, found: int, held: Held) -> int:
    if found >= 0:
        return min(found, held.latest)
    if bound.or_latest:
        return held.latest
    text = f"option {bound.option}: no record of {place} is as young as {time}; "
    text += "with startingOffsetsByTimestampStrategy=latest the read begins at its end then"
    raise OffsetOutOfRange(text, topic=place.topic, partition=place.partition)
