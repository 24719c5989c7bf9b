"""How much one consumer has in memory (`fetch_total_bytes`, Kafka's `fetch.max.bytes` over all partitions), and who is asked next."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from replog.client.core import ClientCore
from replog.client.followed import Followed
from replog.client.results import Fetch
from replog.model import Address

__all__ = ["Room"]

_FIRST_SHARE: Final = 4
"""Until an answer with records has said what one takes, decompressed and as objects, it is expected to take this part of the room."""
_FORGETTING: Final = 4
"""What an answer is expected to take grows to that of the largest one at once, and shrinks by this part with each smaller one."""
_WAITING_BYTES_MIN: Final = 1024


class Room:
    """Of one consumer. Who is asked while the bound is not reached, may go beyond it with that answer."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._answer_bytes = max(core.config.fetch_bytes, core.config.fetch_total_bytes // _FIRST_SHARE)
        self._asked = 0

    def choose(self, lacking: Collection[Followed], followed: Collection[Followed], now_ms: int) -> tuple[list[Followed], list[Followed]]:
        """Who of `lacking` is asked now, those first that were not asked for longest, and who has to wait for room.

        What is paused holds nobody up. Neither does a leader that does not answer: it is asked nothing further meanwhile. All that wait
        for new records have half of the room, so that those that are behind always get theirs. Who is perhaps behind waits for nothing new
        if those like him take more than that.
        """
        if not lacking:
            return [], []
        config = self._core.config
        taken, silent = self._taken(followed, now_ms - config.fetch_wait_ms - config.unanswered_ms)
        waiting_bytes = min(config.fetch_bytes, max(config.fetch_total_bytes // (2 * len(followed)), _WAITING_BYTES_MIN))
        chosen: list[Followed] = []
        left_out: list[Followed] = []
        for one in sorted(lacking, key=lambda one: one.asked):
            if one.wanted is not None:  # asked where it is, and not for records
                chosen.append(one)
                continue
            if taken >= config.fetch_total_bytes or (silent and self._leader(one) in silent):
                left_out.append(one)
                continue
            one.max_bytes = waiting_bytes if one.is_at_end else config.fetch_bytes
            one.asked_bytes = waiting_bytes if one.is_at_end else self._answer_bytes
            one.asked_ms = now_ms
            self._asked += 1
            one.asked = self._asked
            taken += one.asked_bytes
            chosen.append(one)
        for one in chosen:
            one.wait_ms = config.fetch_wait_ms if one.is_at_end or 2 * taken <= config.fetch_total_bytes else 0
        return chosen, left_out

    def answered(self, result: Fetch) -> None:
        """Learn what an answer with records takes in memory: at least what may be asked for."""
        if result.records:
            smaller = self._answer_bytes - self._answer_bytes // _FORGETTING
            self._answer_bytes = max(result.size, smaller, self._core.config.fetch_bytes)

    def _taken(self, followed: Collection[Followed], since_ms: int) -> tuple[int, set[Address]]:
        """What is buffered, and what was asked for and is still to come; and who has not answered what he was asked before `since_ms`."""
        taken = 0
        silent: set[Address] = set()
        for one in followed:
            if one.paused:
                continue
            taken += one.bytes_each * len(one.buffer)
            op = one.op
            if op is not None and not op.done and one.wanted is None:
                if max(one.asked_ms, op.sent_ms) > since_ms:
                    taken += one.asked_bytes
                else:
                    silent.add(op.address)
        return taken, silent

    def _leader(self, one: Followed) -> Address:
        place = self._core.view.place(one.topic, one.number)
        return None if place is None else place.leader
