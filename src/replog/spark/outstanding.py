"""Operations of one task that are under way side by side: a bounded number of bytes, and no round trip that waits for another."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from replog.client.client import Client
from replog.client.operations import Operation

__all__ = ["Outstanding"]

_OPERATION_BYTES: Final = 4_096
"""What an operation counts for beside its batch."""


class Outstanding:
    """Started in the order they are given, settled in any; their outcomes are told in the order they were given."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._driver = client._driver
        self._bytes_max = client._core.config.buffer_bytes
        self._under_way: deque[tuple[Operation, int, Callable[[Any], None]]] = deque()
        self.bytes = 0
        """Of what is under way."""

    def start(self, op: Operation, size: int, told: Callable[[Any], None]) -> None:
        """Ask, once there is room for `size` bytes more; `told` is given the result later. Raises what became of an earlier one."""
        size += _OPERATION_BYTES
        self._settle(lambda: self.bytes + size > self._bytes_max)
        self._client._check_open()
        with self._driver.lock, self._driver.changing:
            self._client._core.submit(op, self._driver.now_ms())
            self._under_way.append((op, size, told))
            self.bytes += size
            self._driver.run()
        self._settle(lambda: self._under_way[0][0].done)

    def finish(self) -> None:
        """Wait for all of them. Raises the first failure."""
        self._settle(lambda: True)

    def give_up(self) -> None:
        """Nobody wants to know what becomes of the rest: it is not sent again. What was sent may be carried out."""
        with self._driver.lock, self._driver.changing:
            for op, _, _ in self._under_way:
                self._client._core.forget(op)
        self._under_way.clear()
        self.bytes = 0

    def _settle(self, wanted: Callable[[], bool]) -> None:
        """Take outcomes from the oldest on, as long as there are any and that is wanted."""
        while self._under_way and wanted():
            op, size, told = self._under_way[0]
            if not op.done:
                self._client._wait(lambda op=op: op.done, None)  # type: ignore[misc]  # its deadline ends it
            if op.error is not None:
                raise op.error
            self._under_way.popleft()
            self.bytes -= size
            told(op.result)
