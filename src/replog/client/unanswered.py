"""Requests that nobody answers: when others are asked who leads now, and which requests then go elsewhere.

A leader that stands still (its process is paused, or it is cut off) breaks no connection, while the controller may have elected
another one long ago. Who only waited for an answer would learn of that when the request times out. A request unanswered for
`unanswered_ms` therefore puts its broker in doubt: others are asked for metadata, again and again with pauses between (KIP-580),
and what waits at a leader that is none any more goes to the new one (as after a KIP-951 hint). An append may wait for replicas
for good reason, so nothing is sent again to a broker that still leads.

The questions are the client's, not the requests': one goes out, however many partitions wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from replog.client.view import View
from replog.config import ClientConfig
from replog.model import Address

if TYPE_CHECKING:
    from replog.client.batches import Batch
    from replog.client.operations import Operation

__all__ = ["Unanswered"]


class Unanswered:
    """When to look at the oldest requests of a client, and which of them have waited too long."""

    def __init__(self, config: ClientConfig) -> None:
        self._patience_ms = config.unanswered_ms
        self._pause_ms = min(config.retry_backoff_ms_max, self._patience_ms)
        self.look_at = 0
        """When to look next, while any request is under way. Too early costs one look."""
        self.questions = 0
        """How often others were asked since somebody last fell silent; 0: nobody is in doubt."""

    def begin(self, sent_ms: int) -> None:
        """Nobody is in doubt: the oldest request under way was sent at `sent_ms`."""
        self.look_at = sent_ms + self._patience_ms
        self.questions = 0

    def sort(self, requests: Iterable[Batch | Operation], view: View, now_ms: int) -> tuple[list[Batch | Operation], list[Address]]:
        """Of `requests`, in the order of sending, those that waited too long: the ones that belong elsewhere, and who has the others."""
        moved: list[Batch | Operation] = []
        silent: dict[Address, None] = {}
        for request in requests:
            if now_ms - request.sent_ms < self._patience_ms:
                break
            if request.has_moved(view):
                moved.append(request)
            else:
                silent[request.address] = None
        return moved, list(silent)

    def asked(self, now_ms: int, jitter: float) -> int:
        """Others are asked now; returns when to ask again. Pauses double up to `unanswered_ms`, with a fifth of jitter either way."""
        pause_ms = min(self._pause_ms << min(self.questions, 20), self._patience_ms)
        self.questions += 1
        self.look_at = now_ms + max(1, int(pause_ms * (0.8 + 0.4 * jitter)))
        return self.look_at
