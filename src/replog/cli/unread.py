"""Lines for a stream that perhaps nobody reads: a thread writes them, and whoever has something to tell never waits for it.

A pipe that nobody empties, or a terminal that Ctrl-S has stopped, takes no more at some time, and a write to it waits for as long as that
lasts. A broker must not wait with it.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self, TextIO

from replog.cli.output import quieten

__all__ = ["WAITING_MAX", "Teller"]

WAITING_MAX: Final = 1_000_000
"""Characters that wait for a stream that takes none. What comes after them is lost, and counted."""
_LAST_S: Final = 2.0
"""What the end waits at most until everything is written."""


class Teller:
    """Writes texts to a stream, in their order, on a thread of its own; `lost` says in a line that so many of them are lost.

    Where nobody listens any more (a closed pipe) it falls silent. RuntimeError if no thread can be had.
    """

    def __init__(self, stream: TextIO, lost: Callable[[int], str], *, waiting_max: int = WAITING_MAX) -> None:
        self._stream = stream
        self._lost_words = lost
        self._waiting_max = waiting_max
        self._lock = threading.RLock()  # and a SimpleQueue: what the garbage collector finds in here may have something to tell as well
        self._texts: SimpleQueue[tuple[str, int] | threading.Event | None] = SimpleQueue()
        self._waiting = 0
        self._lost = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)  # it may be in a write that never ends
        self._thread.start()

    def tell(self, text: str, *, is_last: bool = False) -> None:
        """Have it written, or count it as lost if too much is waiting. `is_last`: why everything ends, which always has room."""
        with self._lock:
            if self._closed:
                return
            lost, self._lost = self._lost, 0
            words = self._lost_words(lost) + text if lost else text
            if self._waiting and self._waiting + len(words) > self._waiting_max and not is_last:
                self._lost += lost + 1
            else:
                self._put(words, lost + 1)

    def flush(self) -> bool:
        """Wait until all of it is written, two seconds at most; returns whether it is."""
        done = threading.Event()
        self._texts.put(done)
        return done.wait(_LAST_S)

    def close(self) -> None:
        """Write what is left, for two seconds at most. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            lost, self._lost = self._lost, 0
            if lost:
                self._put(self._lost_words(lost), lost)
            self._texts.put(None)
        self._thread.join(_LAST_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _put(self, words: str, texts: int) -> None:
        """Under the lock. `texts`: how many are lost if these words are."""
        self._waiting += len(words)
        self._texts.put((words, texts))

    def _run(self) -> None:
        while (one := self._texts.get()) is not None:
            if isinstance(one, threading.Event):
                one.set()
                continue
            words, texts = one
            try:
                lost = 0
                self._write(words)
            except (OSError, ValueError):  # a full disk, a terminal that has gone
                lost = texts
            with self._lock:
                self._waiting -= len(words)
                self._lost += lost

    def _write(self, words: str) -> None:
        """Past the stream's buffer where it is a file of the system: the interpreter flushes that as it ends, and must find it free."""
        stream = self._stream
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError, AttributeError):
            stream.write(words)
            stream.flush()
            return
        rest = memoryview(words.encode(stream.encoding or "utf-8", stream.errors or "backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:  # a file that does not wait (O_NONBLOCK), and full
                poll = select.poll()
                poll.register(descriptor, select.POLLOUT)
                poll.poll()
            except BrokenPipeError:
                quieten(stream)
                return
