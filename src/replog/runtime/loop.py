"""The event loop of a process: sockets and actors in turns, on a thread of its own or on whoever calls (design, section 2).

One turn: wait for sockets without the lock; under it, take in what arrived, run the actors to quiescence, send what they
said. What clients ask is handed over in portions, as long as a turn may take: the rest is for the next. Whoever else runs the
actors under the lock sends as well, because that belongs to every run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from replog.errors import UsageError
from replog.metrics.histogram import SECONDS, Histogram
from replog.model import Address
from replog.runtime.flight import Flight
from replog.runtime.flush_lanes import FlushLanes
from replog.runtime.flushing import outcome_of
from replog.runtime.pump import Heard, Pump
from replog.runtime.putting_off import is_inside
from replog.transport.tcp import TcpTransport
from replog.transport.tcp.turns import DELIVER_MS_MAX

__all__ = ["Loop"]

_log = logging.getLogger("replog")

_STALLS: Final = tuple(edge for edge in SECONDS if edge >= 0.001)
"""Shorter turns stall nobody."""


class Loop:
    """Joins a pump to a TCP transport. `wait_ms_max` bounds how long it rests.

    `ticked` is called, under the lock, as long as turns are taken: not in each of them, but often against `wait_ms_max`.
    """

    def __init__(self, pump: Pump, transport: TcpTransport, *, wait_ms_max: int, ticked: Callable[[], None] | None = None) -> None:
        self._pump = pump
        self._transport = transport
        self._wait_ms_max = wait_ms_max
        self._ticked = ticked
        self._tick_ms = 0
        """When `ticked` is due."""
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._due_ms = 0
        """When the next turn is due even if nothing becomes readable: found under the lock, at the end of the last one."""
        self.turns = Histogram(_STALLS)
        """How long turns took, in seconds, without the wait before them."""
        self.failed: BaseException | None = None
        """What ended the thread, if something did."""
        pump.after_run = transport.flush

    def fileno(self) -> int:
        """Readable when there is work."""
        return self._transport.fileno()

    def listen(self, address: Address) -> None:
        """Let others reach an actor of the pump."""
        self._transport.listen(address, self._pump.inbox(address))

    def post(self, to: Address, message: Any) -> None:
        """Hand something to an actor in the next turn, which comes at once. From any thread."""
        self._pump.post_next(to, message)
        self._transport.wake()

    def flush_on(self, lanes: FlushLanes) -> None:
        """Flushes run there from now on."""

        def flush(_of: Address, run: Flight, done: Heard) -> None:
            def run_and_wake() -> None:
                done(outcome_of(run))
                self._transport.wake()

            lanes.submit(run_and_wake)

        self._pump.flusher = flush

    def next_turn_s(self) -> float:
        """Seconds until a turn is due even if nothing becomes readable."""
        left_ms = self._due_ms - self._pump.now_ms()
        return 0.0 if left_ms <= 0 else (left_ms if left_ms < self._wait_ms_max else self._wait_ms_max) / 1_000

    def _look_ahead(self, now_ms: int) -> None:
        until_ms = now_ms + self._wait_ms_max
        for due_ms in (self._pump.deadline_ms(), self._transport.next_poll_ms()):
            if due_ms is not None and due_ms < until_ms:
                until_ms = due_ms
        self._due_ms = until_ms

    def turn(self, timeout_s: float = 0.0) -> int:
        """One turn, after waiting at most `timeout_s` for it; returns how many messages came in."""
        ready = self._transport.wait(min(timeout_s, self.next_turn_s()) if timeout_s else 0.0)
        with self._pump.lock:
            try:
                began = time.perf_counter()
                now_ms = self._pump.now_ms()
                taken = self._transport.handle(ready, now_ms)
                if now_ms >= self._tick_ms and self._ticked is not None:
                    self._tick_ms = now_ms + self._wait_ms_max // 20
                    self._ticked()
                    self._pump.look()
                try:
                    self._pump.run_locked()
                    while self._transport.has_asked and self._pump.now_ms() - now_ms < DELIVER_MS_MAX:
                        taken += self._transport.deliver()
                        self._pump.run_locked()
                finally:
                    self._look_ahead(now_ms)
                    self.turns.observe(time.perf_counter() - began)
            except BaseException as problem:
                self._pump.changing.__exit__(type(problem), problem, None)  # as `with`, which costs every turn two calls
                raise
        return taken

    def go_on(self, done: Callable[[], bool], limit_s: float) -> None:
        """Wait until `done()`, at most `limit_s`; without a thread of its own, whoever calls takes the turns meanwhile."""
        end_ms = self._pump.now_ms() + int(limit_s * 1_000)
        if self.is_running:
            self._transport.wake()
            self._pump.wait(done, limit_s)
        else:
            while not done() and self._pump.now_ms() < end_ms:
                self.turn(0.05)

    def start(self, name: str) -> None:
        """Take turns on a daemon thread until `stop`, after which there is no other start. Idempotent.

        RuntimeError if no thread can be had; it may be tried again.
        """
        if self._thread is None and not self._stopping:
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            thread.start()
            self._thread = thread

    @property
    def is_running(self) -> bool:
        """Whether a thread of its own takes the turns."""
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping and not self._transport.closed:
            try:
                self.turn(self._wait_ms_max / 1_000)
            except Exception:  # it has killed the actor that raised it; the others live on
                if self._stopping or self._transport.closed:
                    return
                _log.exception("the loop goes on after an error")
            except BaseException as problem:
                self.failed = problem
                raise

    def stop(self) -> None:
        """End the thread and wait for it; called without the lock, or it would wait for ever: UsageError. Idempotent."""
        if is_inside(self._pump.lock):
            raise UsageError("the loop cannot be stopped inside a call of this thread: a signal handler came in between")
        thread, self._thread = self._thread, None
        self._stopping = True
        if thread is not None and thread is not threading.current_thread():
            self._transport.wake()
            thread.join()
