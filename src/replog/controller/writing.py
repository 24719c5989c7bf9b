"""What stores a value at a path: over what is known to be there, over what is there and cannot be read, or where nothing is."""

from __future__ import annotations

from replog.controller.changes import Change, Unreadable
from replog.controller.cluster import Cluster
from replog.ports import Create, Op, Put

__all__ = ["written"]


def written(cluster: Cluster, path: str, value: bytes, known: int | None) -> tuple[Op, int, tuple[Change, ...]]:
    """The operation, the version that it makes, and what it ends; `known` is the version that is there (None: nothing is known to be).

    What could not be read counts as absent, so it is written over; at the version that was seen, because something else may have
    taken its place.
    """
    version = cluster.unreadable.get(path) if known is None else known
    ended = (Unreadable(path, -1),) if path in cluster.unreadable else ()
    return (Create(path, value), 0, ended) if version is None else (Put(path, value, version), version + 1, ended)
