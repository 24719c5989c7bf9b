"""Which partition a row goes to: the one it names, else its key's, else one for all rows of the task that have neither.

The answer depends on the row, on the topic's partitions and on the task's number, on nothing else: a task that Spark runs again puts
every row where it put it before, in whatever order the rows come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from zlib import crc32

from attrs import define, field

from replog.client.client import Client
from replog.client.partitioner import PARTITIONERS, crc32_partition
from replog.errors import Code, rejection
from replog.errors.texts import number_text
from replog.spark.cells import BATCH_OVERHEAD

__all__ = ["Placement", "Topics", "partitions_of", "room_in"]


@define
class Placement:
    """The partitions of one topic, as one task sees them."""

    topic: str
    numbers: Sequence[int]
    """The partitions that exist, ascending; at least one."""
    choose: Callable[[bytes, int], int]
    """Index into `numbers` from a key and their count."""
    task: int
    """Spark's number of the partition that the task writes."""
    cells_bytes: int = 1 << 62
    """Most that records which come together have in cells, unless it is a single one: what is more, no batch could hold."""
    _known: frozenset[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._known = frozenset(self.numbers)

    @property
    def keyless(self) -> int:
        """Where rows without key and partition go."""
        return self.numbers[self.task % len(self.numbers)]

    def of_keys(self, keys: Sequence[bytes | None]) -> list[int]:
        """The partition of each."""
        numbers, count, choose, keyless = self.numbers, len(self.numbers), self.choose, self.keyless
        if choose is crc32_partition:  # a call less per row
            return [keyless if key is None else numbers[crc32(key) % count] for key in keys]
        return [keyless if key is None else numbers[choose(key, count)] for key in keys]

    def check_named(self, named: Iterable[int], place: Callable[[int], str]) -> None:
        """Partitions that rows name; `place` says which row. Raises UnknownTopicOrPartition with those that there are."""
        for number in named:
            if number not in self._known:
                those = ", ".join(map(str, self.numbers[:20])) + (f" and {len(self.numbers) - 20} more" if len(self.numbers) > 20 else "")
                text = f"{place(number)}: topic {self.topic!r} has no partition {number_text(number)}; it has {those}"
                raise rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, text, topic=self.topic)


def partitions_of(client: Client, topic: str) -> list[int]:
    """Those that exist, ascending; the question is given up after `request_timeout_ms`. Raises UnknownTopicOrPartition, TimedOut."""
    return client.partitions_for(topic, timeout_s=client._core.config.request_timeout_ms / 1000)


def room_in(client: Client, topic: str) -> int:
    """Bytes of cells that one batch of this topic can hold."""
    limit: int = client._core.view.batch_limit(topic)
    return limit - BATCH_OVERHEAD


class Topics:
    """The placements of one task, each looked up when its topic is first written to and kept until the task ends."""

    def __init__(
        self,
        partitions_for: Callable[[str], Sequence[int]],
        *,
        partitioner: str,
        task: int,
        room: Callable[[str], int] = lambda topic: 1 << 62,
    ) -> None:
        """`room`: what a batch of a topic holds, in bytes of cells."""
        self._partitions_for = partitions_for
        self._room = room
        self._choose = PARTITIONERS[partitioner]
        self._task = task
        self._found: dict[str, Placement] = {}

    def placement(self, topic: str) -> Placement:
        """Raises UnknownTopicOrPartition naming the topics that exist."""
        found = self._found.get(topic)
        if found is None:
            found = self._found[topic] = Placement(topic, self._partitions_for(topic), self._choose, self._task, max(1, self._room(topic)))
        return found
