"""A process that abuses the connections of a broker until its stdin is closed, and then prints what became of them.

    python benchmarks/attackers.py HOST PORT idle COUNT       connections that say who they are, and nothing more
    python benchmarks/attackers.py HOST PORT loris COUNT      that send a byte a second, half of them of their first frame
    python benchmarks/attackers.py HOST PORT connects RATE    so many per second, made and closed at once

Each prints `ready` once its connections are there.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Final

from replog.codec import HEADER, encode
from replog.messages import Handshake

HELLO: Final = b"".join(map(bytes, encode(Handshake("", "client", -1, -1, 1, 1, 1))))
LATER: Final = (1 << 20).to_bytes(4, "little") + bytes(1 << 10)
"""The beginning of a frame of a mebibyte."""


def over() -> threading.Event:
    """Is set when stdin is closed."""
    event = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), event.set()), daemon=True).start()
    return event


def guest(place: tuple[str, int]) -> socket.socket:
    """A connection that has shaken hands."""
    one = socket.create_connection(place, 30)
    one.sendall(HELLO)
    head = one.recv(HEADER.size, socket.MSG_WAITALL)
    one.recv(int.from_bytes(head[:4], "little") + 4 - HEADER.size, socket.MSG_WAITALL)
    return one


def idle(place: tuple[str, int], count: int) -> dict[str, Any]:
    """How many of them are still open in the end."""
    ended = over()
    ones = [guest(place) for _ in range(count)]
    print("ready", flush=True)
    ended.wait()
    still = 0
    for one in ones:
        one.setblocking(False)
        try:
            still += one.recv(1) != b""
        except BlockingIOError:
            still += 1
        except OSError:
            pass
    return {"open": still}


class Loris:
    """One that sends a byte a second."""

    def __init__(self, place: tuple[str, int], *, known: bool) -> None:
        self.socket = guest(place) if known else socket.create_connection(place, 30)
        self.socket.setblocking(False)
        self.rest = LATER if known else HELLO
        self.began = time.monotonic()

    def creep(self) -> bool:
        """The next byte; False: it has been closed."""
        try:
            self.socket.send(self.rest[:1])
        except OSError:
            return False
        self.rest = self.rest[1:] or b"\0"
        return True


def loris(place: tuple[str, int], count: int) -> dict[str, Any]:
    """How long the longest of them lived; each that is closed is followed by another one."""
    ended = over()
    ones = [Loris(place, known=number % 2 == 0) for number in range(count)]
    selector = selectors.DefaultSelector()
    for one in ones:
        selector.register(one.socket, selectors.EVENT_READ, one)
    print("ready", flush=True)
    lived: list[float] = []
    tick = time.monotonic()
    while not ended.is_set():
        gone = [key.data for key, _ in selector.select(max(tick + 1 - time.monotonic(), 0)) if not _is_open(key.data)]
        if time.monotonic() >= tick + 1:
            tick = time.monotonic()
            gone += [key.data for key in list(selector.get_map().values()) if key.data not in gone and not key.data.creep()]
        for one in gone:
            lived.append(time.monotonic() - one.began)
            selector.unregister(one.socket)
            one.socket.close()
            with suppress(OSError):
                another = Loris(place, known=len(lived) % 2 == 0)
                selector.register(another.socket, selectors.EVENT_READ, another)
    lived += [time.monotonic() - key.data.began for key in selector.get_map().values()]
    return {"closed": len(lived), "lived_s": max(lived)}


def _is_open(one: Loris) -> bool:
    try:
        return one.socket.recv(1 << 16) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def connects(place: tuple[str, int], per_s: int) -> dict[str, Any]:
    """How many were made."""
    ended = over()
    print("ready", flush=True)
    begun, made, failed = time.monotonic(), 0, 0
    while not ended.wait(0.01):
        while made + failed < (time.monotonic() - begun) * per_s and not ended.is_set():
            try:
                socket.create_connection(place, 5).close()
                made += 1
            except OSError:
                failed += 1
    return {"made": made, "failed": failed, "per_s": made / (time.monotonic() - begun)}


if __name__ == "__main__":
    host, port, what, number = sys.argv[1:]
    print(json.dumps({"idle": idle, "loris": loris, "connects": connects}[what]((host, int(port)), int(number))), flush=True)
