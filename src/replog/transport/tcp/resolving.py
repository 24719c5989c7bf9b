"""Names of hosts: asked of the system's resolver elsewhere, because it may take as long to answer as it likes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from replog.transport.tcp.endpoint import Endpoint, SocketAddress, addresses_of

__all__ = ["Found", "Resolver"]

Found = tuple[str, "list[SocketAddress] | Exception"]
"""A name, and its addresses with port 0, or why there are none."""


class Resolver:
    """Of one transport. Each look-up has a daemon thread while it lasts; of one name there is one at a time. `wake` is called, on that
    thread, when there is something in `found`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._under_way: set[str] = set()
        self.found: deque[Found] = deque()
        """Results, for `take`."""

    def ask(self, name: str) -> None:
        """Look it up, unless that is under way. RuntimeError if no thread can be started."""
        if name not in self._under_way:
            thread = threading.Thread(target=_look_up, args=(name, self.found, self._wake), name="replog resolver", daemon=True)
            thread.start()
            self._under_way.add(name)

    def take(self) -> list[Found]:
        """What has been found since the last call; each is used once, and looked up again the next time."""
        found = [self.found.popleft() for _ in range(len(self.found))]
        self._under_way.difference_update(name for name, _ in found)
        return found


def _look_up(name: str, found: deque[Found], wake: Callable[[], None]) -> None:
    try:
        found.append((name, addresses_of(Endpoint(name, 0))))
    except Exception as problem:  # whatever it is, somebody waits for an answer
        found.append((name, problem))
    wake()
