"""Moving partitions to other brokers: wishes, what is queued and under way, and how far those that join are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import attrs
from attrs import field, frozen

from replog.client.arguments import check_count, check_list
from replog.client.operations import AdminOp, Operation, unknown_outcome
from replog.config import check_partition_number, check_topic_name
from replog.errors import Code, UsageError, rejection
from replog.model import Address, PartitionId

__all__ = ["Judged", "PlaceName", "Reassigning", "Reassignment", "Refused", "ReplicaProgress", "checked_wishes"]

_SLICE = 500
"""Wishes, or questions, in one request: fewer than MOVE_WISHES_MAX."""
_PROGRESS_S = 5
"""How long a leader may take to say how far its followers are."""

PlaceName = tuple[str, int, int]
"""Topic id (hexadecimal), partition and creation, as messages name them."""


@frozen
class ReplicaProgress:
    """How far a replica is that joins; None where the leader has not heard from it, or could not be asked."""

    broker_id: int
    end_offset: int | None
    offsets_behind: int | None
    bytes_behind: int | None
    """About: the share of the leader's log that its offsets lack."""


@frozen
class Reassignment:
    """One partition that is queued to move, or moving."""

    topic: str
    partition: int
    status: str
    """"queued" or "moving"."""
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    original: tuple[int, ...]
    """Replicas, and their order, before it began: where a cancellation leads."""
    target: tuple[int, ...] | None
    """Where it will be in the end: after a cancellation, `original` again. None: a cancellation is about to be carried out."""
    isr: tuple[int, ...]
    leader: int | None
    end_offset: int | None = None
    """Of the leader's log."""
    progress: tuple[ReplicaProgress, ...] = field(default=())
    """Of each replica in `adding`."""
    returning: bool = False
    """Whether its move was cancelled, and could not go back at once: it does when enough replicas of `original` are in sync."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return attrs.asdict(self, value_serializer=lambda _i, _a, value: list(value) if isinstance(value, tuple) else value)


class Refused(NamedTuple):
    """A wish that is refused, with the code that says why."""

    topic: str
    partition: int
    code: int
    text: str


@frozen
class Judged:
    """What became of wishes, each judged by itself."""

    accepted: int
    refused: tuple[Refused, ...] = ()
    in_doubt: bool = False
    """Some were asked for again and refused then: the time before they may have been granted."""

    def check(self, verb: str = "refused", granted: str = "accepted") -> None:
        """Raise an error that names those that are refused, if any is."""
        if not self.refused:
            return
        topic, number, code, text = self.refused[0]
        many = len(self.refused) > 1
        texts = "; ".join(map(_placed, islice(self.refused, 5))) + ("; ..." if len(self.refused) > 5 else "") if many else text
        where = {} if many else {"topic": topic, "partition": number}
        others = f"; {'the other one is' if self.accepted == 1 else f'the other {self.accepted} are'} {granted}" if self.accepted else ""
        total = self.accepted + len(self.refused)
        error = rejection(code, f"{len(self.refused)} of {total} {verb}: {texts}{others}", **where)
        raise unknown_outcome("a reassignment", error) if self.in_doubt else error


def _placed(one: Refused) -> str:
    """Each under its own partition, unless its text has that."""
    place = f"{one.topic}-{one.partition}"
    return one.text if place in one.text else f"{place}: {one.text}"


class LeaderOp(AdminOp):
    """A question that one broker answers from what it knows itself."""

    def __init__(self, verb: str, arguments: dict[str, Any], deadline_ms: int, broker: int) -> None:
        super().__init__(verb, arguments, deadline_ms)
        self._broker = broker

    def target(self, core: Any, now_ms: int) -> Address | None:
        """That broker."""
        return self._broker


class Reassigning:
    """The part of `Client` that moves partitions."""

    def _do(self, op: Operation) -> Any:
        """Run an operation to its end."""
        raise NotImplementedError

    def _do_all(self, ops: Iterable[Operation]) -> None:
        """Run operations side by side until all are done, each with its result or its error."""
        raise NotImplementedError

    def _deadline(self, timeout_s: float | None) -> int:
        """When an operation that begins now is given up."""
        raise NotImplementedError

    def reassign(self, targets: Mapping[tuple[str, int], Sequence[int] | None], *, timeout_s: float | None = 30) -> None:
        """Have partitions moved to these brokers, the preferred leader first; None cancels what is queued or under way.

        Returns once the wishes are stored: `reassignments` says what becomes of them. A later wish overrides an earlier one; a move is
        complete when all of its target is in sync, and until then nothing is taken away. What is cancelled goes back at once, or, where
        fewer complete copies than `min_isr` would be left, when enough of the original replicas are in sync; to cancel is refused where
        none of these is complete, unless the topic allows unclean elections. What was accepted is carried out, however long it takes.
        Each wish is judged by itself: if some are refused the others are granted all the same, and what is raised names those refused:
        InvalidReplicaAssignment, NoReassignmentInProgress, UnknownTopicOrPartition; Unavailable if the request had to be repeated, and the
        one before may have been granted.
        """
        self._wish_moves(targets, timeout_s).check()

    def _wish_moves(self, targets: Mapping[tuple[str, int], Sequence[int] | None], timeout_s: float | None) -> Judged:
        """As `reassign`, but what is refused is told and not raised."""
        wishes = checked_wishes(targets)
        refused: list[Refused] = []
        in_doubt = False
        for start in range(0, len(wishes), _SLICE):
            slice_ = wishes[start : start + _SLICE]
            op = AdminOp("reassign", {"partitions": slice_}, self._deadline(timeout_s))
            errors = self._do(op)["errors"]
            cancelled = {(topic, number) for topic, number, target in slice_ if target is None}
            for topic, number, code, text in errors:
                # Asked again because nobody heard the answer: by then it may have been cancelled.
                done = op.uncertain and code == Code.NO_REASSIGNMENT_IN_PROGRESS and (topic, number) in cancelled
                if not done:
                    refused.append(Refused(topic, number, code, text))
                    in_doubt |= op.uncertain
        return Judged(len(wishes) - len(refused), tuple(refused), in_doubt)

    def reassignments(self, *, timeout_s: float | None = 30) -> list[Reassignment]:
        """Every partition that is queued to move or moving, by name; of those that move, how far each joining replica is.

        The controller knows what moves; how far it is each leader is asked. What cannot be asked within some seconds is None.
        """
        found = self._do(AdminOp("list_reassignments", {}, self._deadline(timeout_s)))["reassignments"]
        asked = [(one["leader"], (one["topic_id"], one["partition"], one["creation"])) for one in found if one["adding"]]
        known = self._followers(asked, min(self._deadline(timeout_s), self._deadline(_PROGRESS_S)))
        return [_reassignment(one, known.get((one["topic_id"], one["partition"], one["creation"]))) for one in found]

    def _ends(self, copies: Iterable[tuple[int, PartitionId]], deadline_ms: int) -> dict[tuple[int, PartitionId], int]:
        """Where copies end that do not lead, each given with its broker. Left out are those of which no broker says it."""
        by_broker: dict[int, list[PartitionId]] = {}
        for broker, identity in copies:
            by_broker.setdefault(broker, []).append(identity)
        asked = list(_sliced(by_broker))
        ops = [LeaderOp("followers", {"partitions": [_named(one) for one in some]}, deadline_ms, broker) for broker, some in asked]
        self._do_all(ops)
        ends: dict[tuple[int, PartitionId], int] = {}
        for (broker, some), op in zip(asked, ops, strict=True):
            told = [] if op.error is not None else op.result.get("copies", ())
            known = {(one["topic_id"], one["partition"], one["creation"]): one["end_offset"] for one in told}
            ends |= {(broker, one): known[name] for one in some if (name := tuple(_named(one))) in known}
        return ends

    def _followers(self, places: Iterable[tuple[int | None, PlaceName]], deadline_ms: int) -> dict[PlaceName, dict[str, Any]]:
        """What leaders know of the followers of these partitions, each given with its leader. Those that do not answer are left out."""
        by_leader: dict[int, list[PlaceName]] = {}
        for leader, place in places:
            if leader is not None:
                by_leader.setdefault(leader, []).append(place)
        asked = _sliced(by_leader)
        ops = [LeaderOp("followers", {"partitions": list(map(list, some))}, deadline_ms, leader) for leader, some in asked]
        self._do_all(ops)  # side by side: one that is away costs nobody else's answer, and ten that are away one wait
        known: dict[PlaceName, dict[str, Any]] = {}
        for op in ops:
            if op.error is None:
                known |= {(one["topic_id"], one["partition"], one["creation"]): one for one in op.result["partitions"]}
        return known


_Part = TypeVar("_Part")


def _sliced(by_broker: Mapping[int, Sequence[_Part]]) -> Iterator[tuple[int, Sequence[_Part]]]:
    """What each broker is asked about, as much at a time as goes into one question."""
    for broker, some in sorted(by_broker.items()):
        for start in range(0, len(some), _SLICE):
            yield broker, some[start : start + _SLICE]


def _named(identity: PartitionId) -> list[Any]:
    """As messages name it."""
    return [identity.topic_id.hex(), identity.partition, identity.creation]


def checked_wishes(targets: object) -> list[list[Any]]:
    """As they are sent: [topic, partition, broker ids or None]. Raises UsageError."""
    if not isinstance(targets, Mapping) or not targets:
        raise UsageError(f"targets is a mapping of (topic, partition) to broker ids or None, not {targets!r}")
    wishes: list[list[Any]] = []
    for place, target in targets.items():
        if not isinstance(place, tuple | list) or len(place) != 2:
            raise UsageError(f"targets has {place!r}; it takes (topic, partition) pairs")
        topic, number = check_topic_name(place[0]), check_partition_number(place[1])
        ids = None
        if target is not None:
            ids = [check_count("broker id", b, 0, 2**31 - 1) for b in check_list(f"the target of {topic}-{number}", target, "broker ids")]
        wishes.append([topic, number, ids])
    return wishes


def _reassignment(one: Mapping[str, Any], told: Mapping[str, Any] | None) -> Reassignment:
    """What the controller says, and the leader of it (None: nothing)."""
    end = None if told is None else told["end_offset"]
    followers = {} if told is None else {follower["broker"]: follower for follower in told["followers"]}
    return Reassignment(
        topic=one["topic"],
        partition=one["partition"],
        status=one["status"],
        replicas=tuple(one["replicas"]),
        adding=tuple(one["adding"]),
        removing=tuple(one["removing"]),
        original=tuple(one["original"]),
        target=None if one["target"] is None else tuple(one["target"]),
        isr=tuple(one["isr"]),
        leader=one["leader"],
        end_offset=end,
        progress=tuple(_progress(broker, end, followers.get(broker)) for broker in one["adding"]),
        returning=one.get("returning", False),
    )


def _progress(broker: int, end: int | None, told: Mapping[str, Any] | None) -> ReplicaProgress:
    if end is None or told is None or told["end_offset"] is None:
        return ReplicaProgress(broker, None, None, None)
    return ReplicaProgress(broker, told["end_offset"], end - told["end_offset"], told["bytes_behind"])
