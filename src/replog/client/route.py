"""Where a producer's records of one topic go, and how far their batches are filled, as the view has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replog.client.arguments import check_timeout
from replog.client.columns import full_at
from replog.client.delivery import timed_out
from replog.config import ClientConfig
from replog.errors import Code, rejection

if TYPE_CHECKING:
    from replog.client.driver import Driver
    from replog.client.queues import PartitionQueue
    from replog.client.view import Topic
    from replog.client.writer import Writer

__all__ = ["Route", "seek_partition"]

_AHEAD_MAX: Final = 16
"""Partitions to look at for one in which a record goes at once: each costs 0.1 us, and one batch of records pays for all."""


class Route:
    """Where the records of one topic go, as of one state of the view: there is another one when that has changed."""

    __slots__ = ("asked_ms", "floor", "queues", "serial", "sticky", "turn")

    def __init__(self, writer: Writer, topic: Topic, before: Route | None) -> None:
        """Of a topic with partitions. The one `before`: turns go on where it was."""
        self.serial = writer.core.view.serial
        self.queues: list[PartitionQueue] = [writer.queue(topic.name, number) for number in topic.numbers()]
        """By position in the sorted partition numbers."""
        most, eager = full_at(writer.batch_bytes, topic.config.max_batch_bytes), writer.eager_max(topic.name)
        for queue in self.queues:
            queue.full_at, queue.eager_max = most, eager
        self.turn: int = before.turn if before is not None else writer.core.ids.number() % len(self.queues)
        self.sticky = self.queues[self.turn % len(self.queues)]
        self.floor: int = before.floor if before is not None else -1
        """Number of the Metadata that was last asked for because a partition was not in the view, ..."""
        self.asked_ms: int = before.asked_ms if before is not None else 0
        """... and when."""

    def next_sticky(self) -> PartitionQueue:
        """Records without a key: one partition until its batch has gone, then the next; those in which they would wait for what is under
        way are passed over, if there are others near."""
        queues, turn = self.queues, self.turn
        for ahead in range(1, min(len(queues), _AHEAD_MAX) + 1):
            queue = queues[(turn + ahead) % len(queues)]
            if len(queue.batches) < queue.eager_max:
                break
        else:
            ahead, queue = 1, queues[(turn + 1) % len(queues)]
        self.turn, self.sticky = turn + ahead, queue
        return queue


def seek_partition(driver: Driver, route: Route, topic: str, partition: int, config: ClientConfig) -> None:
    """Wait for news of a partition that the view does not have: it may be new.

    Whoever names wrong ones without end asks once in `retry_backoff_ms`. Raises UnknownTopicOrPartition, unless the whole topic is gone and
    is to be sought; TimedOut if nobody has answered for `max_block_ms`. If that is 0, the answer helps whoever tries again.
    """
    core, timeout_s = driver.core, config.max_block_ms / 1000
    with driver.lock, driver.changing:
        now_ms = driver.now_ms()
        if route.floor < 0 or now_ms - route.asked_ms >= config.retry_backoff_ms:
            route.floor, route.asked_ms = core.refresh(now_ms), now_ms
        floor = route.floor
    is_answered = driver.wait(lambda: core.answered_metadata >= floor, check_timeout(timeout_s))
    with driver.lock:
        if topic not in core.view.topics or core.view.place(topic, partition) is not None:
            return
        text = core.view.unknown(topic, partition)
    if not is_answered and timeout_s:
        raise timed_out(f"news of {topic}-{partition}", timeout_s)
    raise rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, text, topic=topic, partition=partition)
