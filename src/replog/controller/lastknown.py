"""Asking the replicas of last-known sets how far they reach, until every one has answered (KIP-966).

Those that are not waited for, since they were never complete, have an ack timeout to say something: a broker may live and hear nothing.

Only what was asked since the question began is an answer to it: an older one, of this term or of one before it on the same broker,
may be from before the partition was led, and written to, again.

A broker says nothing of a copy that has failed. It is asked again, an ack timeout later, until its report of the failure is here: with that
the partition is decided otherwise, and waits for the broker to come back with what it has (X-13).

A broker that answers nothing at all owes an answer, as to a notice, and counts as fenced after a session timeout: people can decide
without it (X-19). So it is asked until it answers, also once there is nothing any more that it could answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import define, field

from replog.controller.decision import Ask
from replog.controller.events import LastKnownAnswered
from replog.messages import ReplicaStatesAnswer
from replog.model import PartitionId, numbers_from

__all__ = ["LastKnown"]


@define
class _Asked:
    """A broker that has answered nothing since."""

    since_ms: int
    again: bool = False
    """Whether it was asked once more when it had had the time to answer."""


@define
class _Question:
    ask: Ask
    since: int = -1
    """Number of the first request about it; -1: it has not been sent."""
    begun_ms: int = 0
    """When that was."""
    answers: dict[int, tuple[int, int]] = field(factory=dict)
    """Broker -> (last epoch, end offset)."""

    def waiting(self) -> list[int]:
        return [b for b in self.ask.replicas if b not in self.answers]

    def is_enough(self) -> bool:
        """Whether all have answered who must."""
        return self.answers.keys() >= set(self.ask.awaited or self.ask.replicas)

    def answered(self) -> LastKnownAnswered:
        answers = tuple((b, *self.answers[b]) for b in self.ask.replicas if b in self.answers)
        return LastKnownAnswered(self.ask.partition, self.ask.leader_epoch, answers, self.ask.replicas)


class LastKnown:
    """Open questions, by partition. A question ends with its last answer, or when its partition is decided otherwise."""

    def __init__(self, controller_epoch: int) -> None:
        """Requests of other controller epochs have other numbers."""
        self._open: dict[PartitionId, _Question] = {}
        self._request = numbers_from(controller_epoch)
        self._sent_ms = 0
        self._asked: dict[int, _Asked] = {}

    def __len__(self) -> int:
        return len(self._open)

    def drop(self, partition: PartitionId) -> None:
        """The partition was decided again: what was asked about it counts no more."""
        self._open.pop(partition, None)

    def forget(self, broker_id: int) -> None:
        """A life of a broker has ended, or begun: it owes nothing."""
        self._asked.pop(broker_id, None)

    def begin(self, asks: Iterable[Ask]) -> None:
        """Open questions; `messages` sends them."""
        for ask in asks:
            self._open[ask.partition] = _Question(ask)

    def messages(self, now_ms: int, timeout_ms: int) -> Iterator[tuple[int, int, list[PartitionId]]]:
        """(broker, request number, partitions) for everyone who has yet to answer."""
        self._sent_ms = now_ms
        by_broker: dict[int, list[PartitionId]] = {}
        for partition, question in sorted(self._open.items()):
            if question.since < 0:
                question.since, question.begun_ms = self._request + 1, now_ms
            for broker_id in question.waiting():
                by_broker.setdefault(broker_id, []).append(partition)
        for broker_id in sorted(by_broker.keys() | self._asked.keys()):
            self._request += 1
            asked = self._asked.setdefault(broker_id, _Asked(now_ms))
            asked.again = asked.again or now_ms - asked.since_ms >= timeout_ms
            yield broker_id, self._request, by_broker.get(broker_id, [])

    def deadline_ms(self, timeout_ms: int) -> int | None:
        """When to ask again."""
        return self._sent_ms + timeout_ms if self._open or self._asked else None

    def owed(self) -> dict[int, int]:
        """Broker -> since when it owes an answer; those that were asked again."""
        return {b: asked.since_ms for b, asked in self._asked.items() if asked.again}

    def answered(self, answer: ReplicaStatesAnswer) -> list[LastKnownAnswered]:
        """Take an answer; returns the questions that it was the last answer to."""
        self.forget(answer.broker_id)
        done = []
        for replica in answer.replicas:
            question = self._open.get(replica.partition)
            if question is None or not 0 <= question.since <= answer.request:
                continue
            question.answers[answer.broker_id] = (replica.last_epoch, replica.end_offset)
            if not question.waiting():
                done.append(self._open.pop(replica.partition).answered())
        return done

    def settled(self, now_ms: int, timeout_ms: int) -> list[LastKnownAnswered]:
        """Questions that all have answered who must, and of which the others have said nothing for so long."""
        done = [p for p, question in self._open.items() if now_ms - question.begun_ms >= timeout_ms and question.since >= 0]
        return [self._open.pop(partition).answered() for partition in done if self._open[partition].is_enough()]
