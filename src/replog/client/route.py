"""Where a producer's records of one topic go, and how far their batches are filled, as the view has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.client.columns import full_at

if TYPE_CHECKING:
    from replog.client.queues import PartitionQueue
    from replog.client.view import Topic
    from replog.client.writer import Writer

__all__ = ["Route"]


class Route:
    """Where the records of one topic go, as of one state of the view: there is another one when that has changed."""

    __slots__ = ("queues", "serial", "sticky", "turn")

    def __init__(self, writer: Writer, topic: Topic, before: Route | None) -> None:
        """Of a topic with partitions. The one `before`: turns go on where it was."""
        self.serial = writer.core.view.serial
        self.queues: list[PartitionQueue] = [writer.queue(topic.name, number) for number in topic.numbers()]
        """By position in the sorted partition numbers."""
        most = full_at(writer.batch_bytes, topic.config.max_batch_bytes)
        for queue in self.queues:
            queue.full_at = most
        self.turn: int = before.turn if before is not None else writer.core.ids.number() % len(self.queues)
        self.sticky = self.queues[self.turn % len(self.queues)]

    def next_sticky(self) -> PartitionQueue:
        """Records without a key: one partition until its batch has gone, then the next."""
        self.turn += 1
        self.sticky = self.queues[self.turn % len(self.queues)]
        return self.sticky
