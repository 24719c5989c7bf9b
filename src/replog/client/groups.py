"""Which batches share a Produce: those of one turn for one leader under one kind of acknowledgement, as long as a frame can carry them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from replog.client.batches import Batch
from replog.client.view import Place
from replog.messages import Produce, ProduceEntry, Stage
from replog.model import ACKS_NONE, Address

__all__ = ["GROUP_BATCHES", "GROUP_BYTES", "Produces", "numbers_of"]

GROUP_BYTES: Final = 16 << 20
"""A Produce takes no further batch that would make it larger; a single one may be, up to `config.BATCH_BYTES_MAX`."""
GROUP_BATCHES: Final = 10_000
"""... nor more batches: a broker reads only so much of a client's message beside the batches (1 MiB; each takes 44 bytes at most)."""


class Produces:
    """The messages of one turn, in the order in which they were begun: what is added first for a leader leaves first."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._made: list[tuple[Address, Produce]] = []
        self._last: dict[tuple[Address, int], tuple[Produce, int]] = {}
        """The newest message to a leader under a kind of acknowledgement, and the bytes of its batches."""

    def add(self, batch: Batch, place: Place, request: int, now_ms: int) -> None:
        """A batch leaves for the leader, under this number. Under acks=0 that is its outcome."""
        assert batch.body is not None
        batch.request, batch.flying, batch.sent_ms = request, place, now_ms
        acks = batch.queue.writer.acks
        size = len(batch.body)
        message, held = self._last.get((place.leader, acks), (None, 0))
        if message is None or held + size > GROUP_BYTES or len(message.entries) == GROUP_BATCHES:
            message, held = Produce(acks, self._timeout_ms, []), 0
            self._made.append((place.leader, message))
        message.entries.append(ProduceEntry(request, place.identity, batch.body))
        self._last[place.leader, acks] = message, held + size
        if acks == ACKS_NONE:
            core = batch.queue.core
            core.is_unheard = True
            core.age(now_ms + core.config.unanswered_ms)  # after this silence others are asked: here everything is silence
            core.given[place.leader] += size
            batch.went_to = place.leader
            batch.queue.writer.leaving.add(place.leader, size)
            batch.queue.settle(batch)
        elif (place.leader, ACKS_NONE) not in self._last:  # else it may join a message that leaves before what is under acks=0
            batch.queue.core.given[place.leader] += size

    def __iter__(self) -> Iterator[tuple[Address, Produce]]:
        """(leader, message) for each."""
        return iter(self._made)


def numbers_of(message: Any) -> list[int]:
    """The client's own numbers of what a message asks: those that answers would bear."""
    match message:
        case Produce():
            return [entry.request for entry in message.entries]
        case Stage():
            return [message.entry.request]
        case _:
            return [message.request]
