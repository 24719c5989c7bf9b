"""The rows of the store where wishes about partitions are found, and who judges what is written there.

A tool that only writes a path is served like a request (V3 "Paths").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Final

from attrs import evolve

from replog.controller import elections, partitions, reassign, removal
from replog.controller.changes import Change, RejectionNoted, WishNoted
from replog.controller.decision import Decision, Piece, pack
from replog.controller.events import DeletionsSeen, Event, MovesDue, RejectionsSeen, Wish, WishesSeen
from replog.controller.refusal import Refusal
from replog.controller.wishes import is_stuck, of_another, rejected
from replog.errors import Code, StoreCorrupt
from replog.metadata import layout

if TYPE_CHECKING:
    from replog.controller.cluster import Cluster
    from replog.controller.controller import Controller

__all__ = ["ROWS", "may_be_of_unknown", "noted", "wishes_seen"]

Judge = Callable[["Controller", str, Sequence[Wish]], Iterator[Piece]]
"""Decides the wishes of one row about one topic: the pieces, one transaction each, of those that change anything now."""

_JUDGES: Final[dict[str, Judge]] = {
    layout.PARTITIONS_ADD: partitions.additions_wished,
    layout.PARTITIONS_REMOVE: removal.removals_wished,
    layout.ELECT: elections.elections_wished,
    layout.PARTITIONS_REASSIGNED: reassign.moves_wished,
}
ROWS: Final = tuple(_JUDGES)
"""Where wishes are looked for."""


def _turn(row: str, wish: Wish) -> tuple[str, int]:
    """Within a topic by number: partitions are added upwards from the highest and removed downwards, in however many slices."""
    try:
        topic, number = layout.place_of(wish.path).topic_partition
    except StoreCorrupt:
        return "", 0
    return topic, -number if row == layout.PARTITIONS_REMOVE else number


def noted(cluster: Cluster, seen: WishesSeen | DeletionsSeen | RejectionsSeen) -> tuple[Change, ...]:
    """What a look at a row says, to be taken at once: later it may be older than what this controller has written since."""
    match seen:
        case WishesSeen(layout.PARTITIONS_REASSIGNED):
            return reassign.remembered(cluster, seen)
        case WishesSeen(layout.PARTITIONS_REMOVE, wishes):
            there = {wish.path: wish.version for wish in wishes if wish.path in cluster.wished and removal.removes(cluster, wish)}
            return tuple(WishNoted(path, there.get(path, -1)) for path in cluster.wished if not seen.hidden.hides(path))
        case RejectionsSeen(wishes):
            kept = {path: version for path, _, version in wishes}
            gone = [RejectionNoted(path, -1) for path in cluster.rejections if path not in kept]
            return (*gone, *(RejectionNoted(path, version) for path, version in kept.items()))
        case _:
            return ()


def may_be_of_unknown(cluster: Cluster, seen: WishesSeen | DeletionsSeen | RejectionsSeen) -> bool:
    """Whether a wish may be about a topic that was made just now, and is not known, or not known to have taken the place of another.

    A wish to delete one says which it means. Others need not, and there are few of them.
    """
    if not isinstance(seen, DeletionsSeen):
        return isinstance(seen, WishesSeen) and bool(seen.wishes)
    meant = {_meant(wish) for wish in seen.wishes} - {None}
    return any(topic_id not in cluster.topics and topic_id not in cluster.deletions for topic_id in meant)


def _meant(wish: Wish) -> bytes | None:
    """The topic that is to be deleted; None if that cannot be read."""
    with suppress(StoreCorrupt):
        return layout.decode_delete_topic(wish.path, wish.value)
    return None


def wishes_seen(controller: Controller, event: WishesSeen) -> Decision:
    """One slice of what a row holds, topic by topic."""
    if not event.is_rest:
        event = evolve(event, wishes=tuple(sorted(event.wishes, key=lambda wish: _turn(event.row, wish))))
    event = evolve(event, wishes=tuple(wish for wish in event.wishes if not is_stuck(controller.cluster, wish)))
    slice_, rest = event.wishes[: controller.config.slice_partitions_max], event.wishes[controller.config.slice_partitions_max :]
    pieces: list[Piece] = []
    readable: list[Wish] = []
    for wish in slice_:
        try:
            layout.place_of(wish.path)
        except StoreCorrupt as error:
            pieces.append(rejected(controller, wish, Refusal(Code.INVALID_REQUEST, str(error))))
        else:
            readable.append(wish)
    for topic, wishes in groupby(readable, key=lambda wish: layout.place_of(wish.path).topic or ""):
        meant: list[Wish] = []
        for wish in wishes:
            refusal = of_another(controller.cluster, wish)
            if refusal is None:
                meant.append(wish)
            else:
                pieces.append(rejected(controller, wish, refusal))
        pieces += _JUDGES[event.row](controller, topic, meant)
    after: list[Event] = [WishesSeen(event.row, rest, is_rest=True)] if rest else []
    if event.row == layout.PARTITIONS_REASSIGNED:
        after.append(MovesDue())  # what these wishes ask for takes its turn
    return Decision(pack(controller.guard, pieces), after=tuple(after))
