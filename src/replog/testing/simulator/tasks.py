"""Workloads as coroutines: `async def` functions that wait on virtual time and on operations, without any event loop.

A task waits for one thing at a time. Whoever completes that thing resumes the task, on the spot and in a fixed order; so
the same seed runs every task through the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

__all__ = ["Signal", "Task"]

_ENDINGS_MAX: Final = 100
"""So often an ending that awaits something is closed again."""


class Signal:
    """Something that will happen once. `await` it; `set` it with a result, or `fail` it with an error."""

    __slots__ = ("_task", "done", "error", "result")

    def __init__(self) -> None:
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._task: Task | None = None

    def __await__(self) -> Generator[Signal, None, Any]:
        if not self.done:
            yield self
        if self.error is not None:
            raise self.error
        return self.result

    def set(self, result: Any = None) -> None:
        """It has happened: whoever waits goes on."""
        if not self.done:
            self.done, self.result = True, result
            self._resume()

    def fail(self, error: BaseException) -> None:
        """It has failed: whoever waits gets the error raised."""
        if not self.done:
            self.done, self.error = True, error
            self._resume()

    def _resume(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.step()

    def wait(self, task: Task) -> None:
        """Resume this task when it happens."""
        assert self._task is None, "one task waits for one signal"
        self._task = task


class Task:
    """One running coroutine. Steps are queued and never nested: a step that completes another's signal does not run inside it."""

    __slots__ = ("_coroutine", "_queue", "done", "error", "name")

    def __init__(self, name: str, coroutine: Coroutine[Signal, None, Any], queue: Callable[[Task], None]) -> None:
        self.name = name
        self.done = False
        self.error: BaseException | None = None
        self._coroutine = coroutine
        self._queue = queue

    def step(self) -> None:
        """Run on, as soon as the present event is over."""
        self._queue(self)

    def run(self) -> None:
        """Run to the next thing that is waited for. An exception that leaves the coroutine ends it, and is kept."""
        try:
            signal = self._coroutine.send(None)
            if not isinstance(signal, Signal):
                raise TypeError(f"awaits {signal!r}: here are only virtual time and operations of clients to wait for")
            signal.wait(self)
        except StopIteration:
            self.done = True
        except Exception as error:
            self.done, self.error = True, error
        else:
            if signal.done:
                self.step()

    def close(self) -> None:
        """Give up: the run is over. What the endings of the coroutine raise, or still wait for, counts no more."""
        for _ in range(_ENDINGS_MAX):
            try:
                self._coroutine.close()
            except Exception:  # among them RuntimeError: an ending awaits something; the next close ends that
                continue
            return
