"""Reading a log and sending it from its file, against a bare loop of `sendfile` that takes turns with it in one run.

Run with `pytest benchmarks/test_fetch.py --benchmark-enable -s`; test_transport.py has the same between two processes.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

from benchmarks.logs import IDENTITY, body_of, compare, stamped
from benchmarks.targets import at_least

from replog.config import TopicConfig
from replog.log.directory import FileLogDirectory
from replog.log.open_files import FileSlice
from replog.ports import LogStart


def test_fetch(benchmark: Any, capsys: Any, tmp_path: Path) -> None:
    """Reading 1 MiB slices and sending them from the file, against a bare `os.sendfile` loop over the same file."""
    directory = FileLogDirectory(str(tmp_path / "d"))
    (log,) = directory.create([LogStart(IDENTITY, "t", TopicConfig(segment_bytes=1 << 30))])
    for batch in stamped(log, body_of(16 << 10), 4_096, 1)[0]:
        log.append(batch)
    log.forget_tail()
    here, there = socket.socketpair()
    buffer = bytearray(1 << 20)

    def drain() -> None:
        while there.recv_into(buffer):
            pass

    drainer = threading.Thread(target=drain)
    drainer.start()
    out, piece = here.fileno(), 1 << 20

    def send(fd: int, position: int, length: int) -> None:
        while length:
            sent = os.sendfile(out, fd, position, length)
            position += sent
            length -= sent

    def ours() -> None:
        offset = 0
        while offset < log.end_offset:
            for part in log.read(offset, log.end_offset, piece):
                assert isinstance(part, FileSlice)
                send(part.fileno(), part.position, part.length)
                offset = part.end_offset
                part.release()

    (path,) = (tmp_path / "d" / "logs").rglob("*.log")
    fd = os.open(path, os.O_RDONLY)

    def bare() -> None:
        for position in range(0, log.size_bytes, piece):
            send(fd, position, min(piece, log.size_bytes - position))

    compare(benchmark, capsys, "fetch 1 MiB / os.sendfile", ours, bare, log.size_bytes >> 20, at_least("ratio", 0.90))
    here.close()
    drainer.join()
    there.close()
    os.close(fd)
    directory.close(clean=False)
