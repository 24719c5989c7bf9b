"""What a client, or a full disk, can bring about with every message is told once a minute: nobody fills a disk with what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import define, field

from replog.model import PartitionId
from replog.partition.partition import Partition

__all__ = ["TELL_MS", "Seldom"]

TELL_MS: Final = 60_000
"""So often an event of one kind about one partition is told."""


@define
class _Told:
    """Of one kind about one partition, since a moment."""

    since_ms: int
    partition: Partition
    more: int = 0
    fields: dict[str, Any] = field(factory=dict)
    """Of the last one that was not told."""


class Seldom:
    """The first event of a kind about a partition is told at once. Of more the last is told when the time is up, with their number."""

    def __init__(self, event: Callable[..., None]) -> None:
        self._event = event
        self._told: dict[tuple[str, PartitionId], _Told] = {}  # whose time is up first is first

    def tell(self, name: str, now_ms: int, partition: Partition, **fields: Any) -> None:
        """It has happened once more."""
        key = name, partition.identity
        one = self._told.get(key)
        if one is None:
            self._told[key] = _Told(now_ms, partition)
            self._event(name, partition=repr(partition), **fields)
        else:
            one.partition, one.fields = partition, fields
            one.more += 1

    def run(self, now_ms: int) -> None:
        """Tell the sums whose time has come. Whatever is not told of for so long is forgotten."""
        while self._told:
            key = next(iter(self._told))
            one = self._told[key]
            if now_ms < one.since_ms + TELL_MS:
                return
            del self._told[key]
            if one.more:
                self._told[key] = _Told(now_ms, one.partition)
                self._event(key[0], partition=repr(one.partition), **one.fields, more=one.more)
