"""How a wish in the store ends: with the transaction that stores its effect, or that of its last step; or among those rejected.

The path is trigger and record. So a crash at any step leaves either the wish or its effect, for the next controller.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from attrs import evolve

from replog.controller.changes import Change, DeletionSet, MoveWished, MoveWishGone, RejectionNoted
from replog.controller.decision import Decision, Piece, pack
from replog.controller.events import RejectionsSeen, Wish
from replog.controller.refusal import Refusal
from replog.errors import Code, StoreCorrupt
from replog.metadata import layout
from replog.metadata.paths import PATH_CHARACTERS_MAX
from replog.metadata.wishes import Meant, decode_meant, encode_replicas
from replog.ports import Create, Delete, Op, Put
from replog.ports import Event as Told

if TYPE_CHECKING:
    from replog.controller.cluster import Cluster
    from replog.controller.controller import Controller

__all__ = ["end_of_deletion", "ended", "granted", "is_stuck", "of_another", "rejected", "rejections_seen"]

_CREATED: Final = (layout.PARTITIONS_REASSIGNED, layout.ELECT)
"""Where a wish may name the creation of its partition; one to remove it, too, and is granted if that has gone."""
_KEPT_BYTES: Final = 10_000
"""Of a wish that is put away: somebody may have written anything."""


def granted(wish: Wish | MoveWished) -> Op:
    """The last operation of a wish: of this one, not of another that has taken its place meanwhile."""
    return Delete(wish.path, wish.version, wish.created)


def ended(cluster: Cluster, wish: MoveWished) -> tuple[tuple[Op, ...], tuple[Change, ...]]:
    """A wish to move is over, come true or not. One that cannot be removed becomes a cancellation: of whatever partition has its name
    later, nothing is wished by it."""
    if not is_stuck(cluster, wish):
        return (granted(wish),), (MoveWishGone(wish.partition),)
    if wish.target is None:
        return (), ()
    cancelled = evolve(wish, target=None, version=wish.version + 1)
    return (Put(wish.path, encode_replicas(None, Meant.of(wish.partition)), wish.version),), (cancelled,)


def end_of_deletion(cluster: Cluster, wish: DeletionSet) -> tuple[Op, ...]:
    """The same of a wish to delete a topic; nothing if its node cannot be removed."""
    path = layout.delete_topic_path(wish.topic)
    return () if cluster.is_stuck(path, wish.version, wish.created) else (Delete(path, wish.version, wish.created),)


def is_stuck(cluster: Cluster, wish: Wish | MoveWished) -> bool:
    """Whether the wish cannot be removed: then it is not granted, or it would be granted again and again."""
    return cluster.is_stuck(wish.path, wish.version, wish.created)


def of_another(cluster: Cluster, wish: Wish) -> Refusal | None:
    """Why a wish is about another topic than that which has this name now, or another partition than that which has this number.

    It has outlived that one: it could not be read while that was deleted, or came just then. Nobody is to move, or to remove, a partition
    of the next topic for it. What names no topic is about the one that was there when its node was made.
    """
    place, meant = layout.place_of(wish.path), Meant()
    topic = cluster.topic_named(place.topic)
    if topic is None:
        return None
    with suppress(StoreCorrupt):  # whoever judges it says so
        meant = decode_meant(wish.path, wish.value)
    is_older = topic.created is not None and wish.created is not None and wish.created < topic.created
    if is_older if meant.topic_id is None else meant.topic_id != topic.topic_id:
        what = f"topic {topic.topic!r}"
    else:
        known = topic.assignments.get(place.topic_partition.partition)
        if place.row not in _CREATED or meant.creation is None or known is None or known.creation == meant.creation:
            return None
        what = f"partition {place.topic_partition.partition} of topic {topic.topic!r}"
    return Refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{what} is another one than that about which this was written")


def rejected(controller: Controller, wish: Wish, refusal: Refusal) -> Piece:
    """Put a wish away, with the reason why it is not granted; it stays there for a day."""
    told = Told("wish_rejected", {"path": wish.path, "error": str(refusal)})
    path = layout.rejected_path(wish.path)
    if len(path) > PATH_CHARACTERS_MAX:
        return Piece((granted(wish),), (), (told,))  # there is no place for it
    value = layout.encode_rejection(layout.Rejection(wish.value[:_KEPT_BYTES], refusal.code, str(refusal), controller.wall_ms))
    version = controller.cluster.rejections.get(path)
    op: Op = Create(path, value) if version is None else Put(path, value, version)
    return Piece((granted(wish), op), (RejectionNoted(path, 0 if version is None else version + 1),), (told,))


def rejections_seen(controller: Controller, event: RejectionsSeen) -> Decision:
    """Forget rejections that are old enough, one slice of them; the next look finds the others."""
    until, cluster = controller.wall_ms - controller.config.rejected_wish_ms, controller.cluster
    known = [(path, version) for path, wall_ms, version in event.wishes if wall_ms is not None and wall_ms <= until]
    old = [one for one in known if not cluster.is_stuck(*one)][: controller.config.slice_partitions_max]
    pieces = [Piece((Delete(path, version),), (RejectionNoted(path, -1),)) for path, version in old]
    return Decision(pack(controller.guard, pieces))
