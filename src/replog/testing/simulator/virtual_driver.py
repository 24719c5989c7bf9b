"""The driver below the real `Client` of a run: its blocking waits are virtual time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from replog.client.core import ClientCore
from replog.client.delivery import run_callbacks
from replog.errors import UsageError
from replog.model import Address
from replog.testing.simulator.strands import await_here

if TYPE_CHECKING:
    from types import TracebackType

    from replog.testing.simulator.clients import SimulatedClient

__all__ = ["VirtualDriver"]


class _Lock(AbstractContextManager[Any]):
    """Nothing else runs while a strand does, so it only counts: whoever waits must not hold it."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.depth -= 1


class VirtualDriver:
    """The `Driver` of a simulated client. What blocks must run in a strand."""

    def __init__(self, client: SimulatedClient) -> None:
        self._client = client
        self._lock = _Lock()
        self._closed = False

    @property
    def core(self) -> ClientCore:
        """The same that the workloads without a strand use."""
        return self._client.core

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Reentrant."""
        return self._lock

    @property
    def changing(self) -> AbstractContextManager[Any]:
        """Nothing interrupts a strand."""
        return nullcontext()

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    def now_ms(self) -> int:
        """Virtual time."""
        return self._client.world.now_ms

    def wall_ms(self) -> int:
        """The wall clock of the world."""
        return self._client.world.wall_ms

    def run(self) -> None:
        """Give what is to be sent to the network. UsageError once the client is closed."""
        self._check_usable()
        self._client.turn()

    def wait(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Let the world go on until `done()`, as every driver does."""
        assert not self._lock.depth, "waits with the lock held"
        client, end_ms = self._client, None if timeout_s is None else self.now_ms() + int(timeout_s * 1000)
        while True:
            self._check_usable()
            client.turn()
            run_callbacks(self.core)
            if done():
                return True
            left_ms = None if end_ms is None else end_ms - self.now_ms()
            if left_ms is not None and left_ms <= 0:
                return False
            await_here(client.until(done, left_ms))

    def wake(self) -> None:
        """Nobody but one task waits, and it is that one which would call."""

    def attend(self) -> None:
        """The world itself runs the timers of every client, whether anybody calls or not."""

    def expect(self) -> None:
        """As `attend`."""

    def unsent_to(self, broker: Address) -> int:
        """Nothing: the network takes everything at once."""
        return 0

    def close(self) -> None:
        """Nothing may be sent any more. Idempotent."""
        self._closed = True

    def _check_usable(self) -> None:
        if self._closed:
            raise UsageError("this Client is closed")
