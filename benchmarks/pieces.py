"""What no replication of a MiB over TCP can do without, in processor time of this machine: into a socket and out of it, into a file, from
a file into a socket, and a checksum."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, Final, Self

import attrs
from crc32c import crc32c

__all__ = ["MIB", "Pieces", "Spent"]

MIB: Final = 1 << 20


@attrs.frozen(slots=True)
class Spent:
    """Microseconds of processor time of a MiB, both ends of a socket included."""

    sent: float
    appended: float
    served: float
    checked: float

    def of_copies(self, copies: int) -> float:
        """A MiB that one producer sends and so many copies hold: each appends and checks it, and all but one have it from the first."""
        return self.sent + copies * (self.appended + self.checked) + (copies - 1) * self.served


class Pieces:
    """A file that grows, and a connection over the loopback to a thread that takes what comes; `with` closes both."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "pieces", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._here = socket.create_connection(server.getsockname())
            self._there, _ = server.accept()
        self._body = os.urandom(MIB)
        self._buffer = memoryview(bytearray(MIB))
        os.write(self._file, self._body)

    def measured(self, count: int) -> Spent:
        """Each piece so often, one after the other."""
        return Spent(
            sent=self._spent(lambda: self._through(count, lambda: self._here.sendall(self._body))) / count,
            appended=self._spent(lambda: [os.write(self._file, self._body) for _ in range(count)]) / count,
            served=self._spent(lambda: self._through(count, self._serve)) / count,
            checked=self._spent(lambda: [crc32c(self._body) for _ in range(count)]) / count,
        )

    def _spent(self, loop: Callable[[], object]) -> float:
        """Microseconds of all threads of this process, and of nobody else."""
        begun = time.process_time()
        loop()
        return (time.process_time() - begun) * 1e6

    def _through(self, count: int, send: Callable[[], object]) -> None:
        taker = Thread(target=self._take, args=(count * MIB,))
        taker.start()
        for _ in range(count):
            send()
        taker.join()

    def _serve(self) -> None:
        sent = 0
        while sent < MIB:
            sent += os.sendfile(self._here.fileno(), self._file, sent, MIB - sent)

    def _take(self, left: int) -> None:
        while left:
            left -= self._there.recv_into(self._buffer[:left])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: Any) -> None:
        self._here.close()
        self._there.close()
        os.close(self._file)
