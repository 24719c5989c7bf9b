"""Wishes for more and fewer partitions and for another configuration, compared with what the store then has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve

from replog.config import TopicConfig, default_min_isr
from replog.messages import Admin
from replog.metadata import layout
from replog.metadata.layout import TopicEntry
from replog.metadata.wishes import decode_partition_remove
from replog.model import Address
from replog.ports import Create, Delete, Put

__all__ = ["Reshapes"]


class Reshapes:
    """What topics were and became. `under_way` gives the requests of a verb about a topic that may still be fulfilled."""

    def __init__(self, under_way: Callable[[str, str], list[Admin]]) -> None:
        self._under_way = under_way
        self._entries: dict[str, list[TopicEntry]] = {}
        """Name -> every topic of that name, as it was stored each time."""
        self._asked: dict[tuple[Address, int], int] = {}
        """Wish -> how many entries of its topic there were when it was made."""
        self._removals: dict[tuple[str, int], int | None] = {}
        """(topic, partition) of the removals that are stored as wishes, with the creation that is meant; None: whichever there is. They
        outlive the request, its controller and everybody's session."""
        self._removed: dict[tuple[str, int], int | None] = {}
        """Those that the present transaction takes away."""

    def asked(self, key: tuple[Address, int], name: str) -> None:
        """A client makes a wish."""
        self._asked.setdefault(key, len(self._entries.get(name, ())))

    def stored(self, name: str, entry: TopicEntry) -> None:
        """The store has a topic, or another entry of it."""
        self._entries.setdefault(name, []).append(entry)

    def begin(self) -> None:
        """The store commits a transaction."""
        self._removed = {}

    def wish_changed(self, op: Any) -> str:
        """A removal is stored as a wish, or is no wish any more; what is wrong with that, if anything."""
        place = layout.place_of(op.path).topic_partition
        key = (place.topic, place.partition)
        if isinstance(op, Delete):
            if key in self._removals:
                self._removed[key] = self._removals.pop(key)
        elif isinstance(op, Create | Put):
            creation = decode_partition_remove(op.path, op.value)
            if not self._names_all(place.topic, {place.partition: creation}):
                return f"a wish to remove {place} of creation {creation} is stored, and nobody has made it who has not been answered"
            self._removals[key] = creation
        return ""

    def judged(self, name: str, before: TopicEntry, after: TopicEntry) -> str:
        """What is wrong with a change of numbers and configuration; empty: nothing."""
        more, fewer = sorted(after.partitions.keys() - before.partitions), sorted(before.partitions.keys() - after.partitions)
        next_creation = before.next_creation
        if more and not self._may_grow(name, len(after.partitions)):
            return f"topic {name!r} has more partitions, {more}, which nobody has asked for"
        if any(after.partitions[number].creation != next_creation for number in more):
            return f"topic {name!r} has partitions {more} with other creation numbers than {next_creation}: {after.partitions}"
        if fewer:
            gone = {number: before.partitions[number].creation for number in fewer}
            if not self._may_shrink(name, gone):
                return f"topic {name!r} loses partitions {gone}, and nobody has asked for that"
            next_creation = max(next_creation, *(creation + 1 for creation in gone.values()))
        if list(after.partitions) != list(range(len(after.partitions))):
            return f"topic {name!r} has partitions {list(after.partitions)}"
        if after.config != before.config and not self._may_alter(name, before, after):
            return f"topic {name!r} has configuration {after.config} after {before.config}, which nobody has asked for"
        same = evolve(before, partitions=after.partitions, next_creation=next_creation, config=after.config, former=after.former)
        if same != after or not {*before.former} <= {*after.former}:
            return f"topic {name!r} is changed from {before} to {after}"
        return ""

    def _may_grow(self, name: str, count: int) -> bool:
        return any(wish.arguments["total"] == count for wish in self._under_way("add_partitions", name))

    def _may_shrink(self, name: str, gone: Mapping[int, int]) -> bool:
        """Whether one request names all of them, or each is stored as a wish."""
        stored = {**self._removed, **self._removals}
        is_stored = all((name, number) in stored and stored[name, number] in (None, creation) for number, creation in gone.items())
        return is_stored or self._names_all(name, gone)

    def _names_all(self, name: str, gone: Mapping[int, int | None]) -> bool:
        for wish in self._under_way("remove_partitions", name):
            numbers, creations = wish.arguments["partitions"], wish.arguments.get("creations")
            meant = dict(zip(numbers, creations, strict=True)) if creations is not None else dict.fromkeys(numbers)
            if all(number in meant and meant[number] in (None, creation) for number, creation in gone.items()):
                return True
        return False

    def _may_alter(self, name: str, before: TopicEntry, after: TopicEntry) -> bool:
        factor = min(len(one.original or one.replicas) for one in after.partitions.values())
        return any(
            TopicConfig.from_mapping(after.config) == _altered(before.config, wish.arguments["config"], factor)
            for wish in self._under_way("alter_topic", name)
        )

    def granted(self, key: tuple[Address, int], wish: Admin) -> str:
        """What is wrong with granting this wish; empty: nothing."""
        name = str(wish.arguments.get("name"))
        entries = self._entries.get(name, [])
        since = entries[max(0, self._asked.get(key, 0) - 1) :]
        if wish.verb == "add_partitions" and not any(len(one.partitions) >= wish.arguments["total"] for one in since):
            had = [len(one.partitions) for one in since]
            return f"more partitions of {name!r}, {wish.arguments['total']} in all, are granted; it had {had}"
        if wish.verb == "remove_partitions" and wish.arguments.get("creations") is not None and entries:
            meant = zip(wish.arguments["partitions"], wish.arguments["creations"], strict=True)
            left = [number for number, creation in meant if number in entries[-1].partitions and _creation(entries[-1], number) == creation]
            if left and entries[-1].topic_id.hex() == wish.arguments["topic_id"]:
                return f"the removal of {left} of {name!r} is granted, and they are there"
        if wish.verb == "alter_topic" and not any(_has(one, wish.arguments["config"]) for one in since):
            return f"{wish.arguments['config']} is granted for {name!r}; its configuration was {[dict(e.config) for e in since]}"
        return ""


def _creation(entry: TopicEntry, number: int) -> int:
    return entry.partitions[number].creation


def _has(entry: TopicEntry, wanted: Mapping[str, Any]) -> bool:
    config = TopicConfig.from_mapping(entry.config)
    return all(value is None or getattr(config, key) == value for key, value in wanted.items())


def _altered(config: Mapping[str, Any], wanted: Mapping[str, Any], factor: int) -> TopicConfig:
    made = TopicConfig.from_mapping({key: value for key, value in {**config, **wanted}.items() if value is not None})
    return made if made.min_isr is not None else evolve(made, min_isr=default_min_isr(factor))
