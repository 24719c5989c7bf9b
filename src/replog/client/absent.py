"""Topics that a client seeks and no broker has: whether they may still come, and what to say of those that do not.

One that this client has created itself may be unknown to the broker that is asked. One that the brokers make because it is sought
(`auto_create_topics`) is on its way while they say LEADER_NOT_AVAILABLE; any other code is their refusal. Who sought a topic asks
the same broker again, which has the answer of the controller. What nobody waits for any more is asked for no more: it might be made.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field

from replog.client.operations import MetadataOp, Operation, PartitionOp
from replog.client.view import View
from replog.errors import Code, ReplogError, rejection
from replog.messages import ClusterView
from replog.model import Address

if TYPE_CHECKING:
    from replog.client.core import ClientCore
    from replog.client.queues import PartitionQueue
from replog.client.writer import Writer

__all__ = ["Absent", "TopicOp", "forget_gone"]

_TOLD_MAX = 1_000
_NAMES_MAX = 1_000
"""Topics that one Metadata asks for: a broker makes no more at a time, and the message stays far below its limit."""
_QUESTIONS_MAX = 10


@define
class _Sought:
    """A topic that is sought, and by whom."""

    floor: int
    """Number of the first Metadata whose answer may speak of it."""
    seekers: dict[TopicOp | PartitionOp | PartitionQueue, None] = field(factory=dict)
    named: int = -1
    """Number of the last answered Metadata that asked for it."""


class Absent:
    """What this client has created, what it seeks, and what it was told of that."""

    def __init__(self) -> None:
        self.asked: Address = -1
        """Who has said that a topic is being made; -1: nobody."""
        self._created: dict[str, int] = {}
        """Topics of this client, and until when (ms) a broker that does not know them is only late."""
        self._sought: dict[str, _Sought] = {}
        self._told: dict[str, tuple[int, str]] = {}
        self._questions: dict[int, list[str]] = {}
        """What each of the last Metadata asked for."""

    def created(self, topic: str, until_ms: int, now_ms: int) -> None:
        """This client has created a topic: for a while, a broker that does not know it is only late."""
        while self._created and self._created[first := next(iter(self._created))] <= now_ms:  # they end in this order
            del self._created[first]
        self._created.pop(topic, None)
        self._created[topic] = until_ms

    def deleted(self, topic: str) -> None:
        """... and deletes it."""
        self._created.pop(topic, None)

    def seek(self, seeker: TopicOp | PartitionOp | PartitionQueue | None, floor: int) -> int:
        """Ask for the topic of `seeker` in every Metadata until one with this number or a higher one is answered. None: nobody seeks any.

        No longer than somebody waits for it.
        """
        if seeker is not None:
            one = self._sought.setdefault(seeker.topic, _Sought(floor))
            one.floor = floor
            one.seekers[seeker] = None
        return floor

    def sought(self, request: int, waiting: Container[Operation]) -> list[str]:
        """What the Metadata of this number asks for: what has been sought longest, the rest in the next ones.

        `waiting` are the operations that are not done, nor forgotten.
        """
        self._leave_out_who_has_given_up(waiting)
        names = self._questions[request] = sorted(islice(self._sought, _NAMES_MAX))
        while len(self._questions) > _QUESTIONS_MAX:
            del self._questions[next(iter(self._questions))]
        return names

    def _leave_out_who_has_given_up(self, waiting: Container[Operation]) -> None:
        for name, one in list(self._sought.items()):
            for seeker in list(one.seekers):
                if not (seeker in waiting if isinstance(seeker, Operation) else seeker.has_batches):
                    del one.seekers[seeker]
                    seeker.floor = -1  # a queue that is used again seeks it anew
            if not one.seekers:
                del self._sought[name]

    def told(self, sender: Address, view: ClusterView) -> None:
        """An answer that counts, or news of the cluster."""
        if not (self._sought or self._told):
            return
        for name in self._questions.pop(view.request, ()):
            one = self._sought.pop(name, None)
            if one is not None and one.floor > view.request:  # sought again since: behind those that have waited longer
                self._sought[name] = one
                one.named = max(one.named, view.request)
            self._told.pop(name, None)
        for topic in view.topics:
            self._told.pop(topic.topic, None)
        for name, code, why in view.missing:
            self._told[name] = (code, why)
        while len(self._told) > _TOLD_MAX:
            del self._told[next(iter(self._told))]
        if view.missing:
            self.asked = sender
        elif not any(code == Code.LEADER_NOT_AVAILABLE for code, _ in self._told.values()):
            self.asked = -1

    def why(self, view: View, topic: str, partition: int | None, now_ms: int, floor: int) -> ReplogError | None:
        """Why there is no such place, or topic (`partition` None), for whoever sought it from `floor` on; None: it may still come."""
        if topic not in view.topics:
            if topic in view.hidden:
                return None  # it is there, and cannot be read now
            code, why = self._told.get(topic, (Code.NONE, ""))
            if code == Code.LEADER_NOT_AVAILABLE or self._created.get(topic, now_ms) > now_ms:
                return None
            if code:
                return rejection(code, why, topic=topic)
            one = self._sought.get(topic)
            if one is not None and one.named < floor:
                return None  # no answered question has named it since it was sought
        where = {"topic": topic} if partition is None else {"topic": topic, "partition": partition}
        return rejection(Code.UNKNOWN_TOPIC_OR_PARTITION, view.unknown(topic, partition or 0), **where)


class TopicOp(MetadataOp):
    """Wait for an answer to a Metadata that seeks a topic, and while the topic is being made. Result: the Topic, as it is known then."""

    def __init__(self, topic: str, deadline_ms: int) -> None:
        super().__init__(deadline_ms, what=f"the question for topic {topic!r}")
        self.topic = topic

    def target(self, core: ClientCore, now_ms: int) -> None:
        """Nobody: the core asks."""
        if self.asked >= 0 and core.answered_metadata < self.asked:
            return None
        if self.asked >= 0:
            found = core.view.topics.get(self.topic)
            error = None if found is not None else core.absent.why(core.view, self.topic, None, now_ms, self.asked)
            if found is not None and found.partitions:
                self.finish(found)
            elif error is not None:
                self.fail(error)
            if self.done:
                return None
            self.last_code = Code.LEADER_NOT_AVAILABLE
            self.failures += 1
            self.retry_at = now_ms + core.backoff_ms(self.failures)
        self.asked = core.refresh(now_ms, self)
        return None


def forget_gone(writers: Iterable[Writer], view: View) -> None:
    """Nothing is kept for topics and partitions that are gone, once all that was sent there has its outcome."""
    for writer in writers:
        if writer.is_retired:  # perhaps by the collector, which may change no timers
            writer.retire()
        gone = writer.queues if view.gone is None else [place for place in view.gone if place in writer.queues]
        for queue in [*writer.unplaced, *(writer.queues[place] for place in gone)]:
            if view.place(queue.topic, queue.partition) is not None:
                writer.unplaced.pop(queue, None)
            elif queue.has_batches:
                writer.unplaced[queue] = None
            else:
                writer.forget(queue)
        for topic in list(writer.routes) if view.gone is None else [topic for topic, _ in view.gone]:
            if topic not in view.topics:
                writer.routes.pop(topic, None)
