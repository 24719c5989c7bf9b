"""The flushes of one simulated broker: each has a beginning and an end, and the broker goes on in between.

In production a worker runs the token while the event loop appends to the same log, rolls it, truncates it, or dies. Here the token
runs on a thread that is stepped: it stops at the beginning of each fsync, and goes on at its end, when virtual time has passed. So
whatever it reads before and after is read at those moments, and the disk makes durable what was written before the fsync began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replog.ports import FlushToken
from replog.testing.simulator.ledger import Violation
from replog.testing.simulator.plan import stream
from replog.testing.simulator.stepping import Stepped

if TYPE_CHECKING:
    from replog.testing.simulator.node import Node

__all__ = ["Flushes"]


class Flushes:
    """Those that are under way. They end with the process that has asked for them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._running: list[Stepped] = []
        self._chance = stream(node.world.plan.seed, f"flushes {node.broker_id}")

    def ask(self, token: FlushToken, delay_ms: int) -> None:
        """Have it done on a worker, which gets to it within `delay_ms`, and takes what is left of that, and of `flush_takes_ms`."""
        node = self._node
        node.storage.attend(token)
        first_ms = self._chance.randint(0, delay_ms)
        left_ms = delay_ms - first_ms + self._chance.randint(0, node.world.plan.shape.flush_takes_ms)
        node.soon(first_ms, self._begin, token, left_ms)

    def _begin(self, token: FlushToken, left_ms: int) -> None:
        stepped = Stepped(token.run)
        self._running.append(stepped)
        self._step(stepped, token, left_ms)

    def _step(self, stepped: Stepped, token: FlushToken, left_ms: int) -> None:
        """On to the beginning of the next fsync, or to the end."""
        try:
            ended = stepped.step()
        except Exception as problem:
            raise Violation("crash", f"a flush of {token.identity}: {problem!r}") from problem
        if ended:
            self._running.remove(stepped)
            self._node.flushed(token)
            return
        took_ms = self._chance.randint(0, left_ms)
        log = self._node.directory.get(token.identity)
        self._node.soon(took_ms, self._synced, stepped, token, left_ms - took_ms, log, _facts(log))

    def _synced(self, stepped: Stepped, token: FlushToken, left_ms: int, log: Any, before: tuple[int, int, int]) -> None:
        """The fsync ends; what has become of the log meanwhile is worth a mark."""
        self._node.world.checks.no_message()
        marks, after = self._node.world.marks, _facts(log)
        if after[0] > before[0]:
            marks.hit("a log is appended to during an fsync")
        if after[1] > before[1]:
            marks.hit("a log is cut during an fsync")
        if after[2] > before[2]:
            marks.hit("a log gets another segment during an fsync")
        self._step(stepped, token, left_ms)

    def end(self, how: str) -> None:
        """The process ends: if it may, its worker finishes what it has begun, and nobody hears of it; else it stops in the middle of it."""
        running, self._running = self._running, []
        if running and how == "kill":
            self._node.world.marks.hit("a process is killed during an fsync")
        if running and how == "power":
            self._node.world.marks.hit("a machine loses power during an fsync")
        for stepped in running:
            if how == "clean":
                while not stepped.step():
                    pass
            else:
                stepped.abandon()


def _facts(log: Any) -> tuple[int, int, int]:
    """Its end, how often it was cut, and how many segments it has; None: of a log that is served no more."""
    return (0, 0, 0) if log is None else (log.end_offset, log.generation, len(log._segments))
