"""The least that three processes can do to copy a batch twice and acknowledge it: what any replication of this shape costs in Python.

As replog does: one leader, two followers that fetch and wait for more, a checksum verified on each copy, a position stamped by the
leader, an append to each file, and an acknowledgement once both followers have asked for what comes after. And nothing else: one
partition, no epochs, no index, no errors, no codec, no restart.

    python -m benchmarks.bare_replication leader FOLDER       prints its port
    python -m benchmarks.bare_replication follower FOLDER PORT
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from crc32c import crc32c

__all__ = ["BareClient", "bare_replication"]

ROOT: Final = Path(__file__).resolve().parents[1]
HEAD: Final = struct.Struct("<IIQ")
"""Bytes of the body, its checksum, and the position in the log, which the leader fills in."""
POSITION: Final = struct.Struct("<Q")
CLIENT: Final = b"C"
FOLLOWER: Final = b"F"
FETCH_BYTES: Final = 1 << 20
BUFFER_BYTES: Final = 8 << 20
"""More than is ever under way, so that a frame is whole in the buffer sooner or later."""


class Frames:
    """What a client sends, cut into frames whose checksums are right."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._begin = self._end = 0

    def read(self) -> list[memoryview]:
        """Those that are whole after one more `recv`; valid until the next call. Raises EOFError at the end of the stream."""
        if self._begin == self._end:
            self._begin = self._end = 0
        elif self._begin > BUFFER_BYTES // 2:
            left = bytes(self._view[self._begin : self._end])
            self._view[: len(left)] = left
            self._begin, self._end = 0, len(left)
        count = self._client.recv_into(self._view[self._end :])
        if not count:
            raise EOFError
        self._end += count
        frames = []
        for frame in whole(self._view[self._begin : self._end]):
            frames.append(frame)
            self._begin += len(frame)
        return frames


def whole(view: memoryview) -> Iterator[memoryview]:
    """The frames that are all there."""
    at = 0
    while len(view) - at >= HEAD.size:
        size, checksum, _ = HEAD.unpack_from(view, at)
        if len(view) - at - HEAD.size < size:
            return
        assert crc32c(view[at + HEAD.size : at + HEAD.size + size]) == checksum
        yield view[at : at + HEAD.size + size]
        at += HEAD.size + size


def opened(folder: str) -> int:
    return os.open(Path(folder, "log"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)


class Leader:
    """Appends what the client sends, gives followers what they ask for, and counts what both have."""

    def __init__(self, folder: str) -> None:
        self._file = opened(folder)
        self._ends = [0]
        """Of each batch, after the beginning of the log."""
        self._answered = 0
        self._positions: dict[socket.socket, int] = {}
        self._parked: dict[socket.socket, None] = {}

    def appended(self, frames: Sequence[memoryview]) -> None:
        """All of them with one write; then who waits is served."""
        for frame in frames:
            POSITION.pack_into(frame, HEAD.size - POSITION.size, self._ends[-1])
            self._ends.append(self._ends[-1] + len(frame))
        if frames:
            os.writev(self._file, frames)
            for follower in list(self._parked):
                self._serve(follower)

    def fetched(self, follower: socket.socket, position: int) -> int:
        """A follower has everything before a position, and wants what comes then. Returns how many batches both have by that."""
        self._positions[follower] = position
        self._serve(follower)
        committed = bisect_right(self._ends, min(self._positions.values())) - 1
        done, self._answered = committed - self._answered, committed
        return done

    def _serve(self, follower: socket.socket) -> None:
        """Whole batches from the file to its socket; if there are none, later."""
        begin = self._positions[follower]
        first = bisect_right(self._ends, begin)
        if first == len(self._ends):
            self._parked[follower] = None
            return
        self._parked.pop(follower, None)
        end = self._ends[max(first, bisect_right(self._ends, begin + FETCH_BYTES) - 1)]
        follower.send(POSITION.pack(end - begin), socket.MSG_MORE)
        while begin < end:
            begin += os.sendfile(follower.fileno(), self._file, begin, end - begin)


def lead(folder: str) -> None:
    """Two followers and a client, which say what they are."""
    leader = Leader(folder)
    peers: dict[int, socket.socket] = {}
    poll = select.epoll()
    client = None
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        for _ in range(3):
            peer, _ = server.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if peer.recv(1) == CLIENT:
                client = peer
            else:
                leader.fetched(peer, 0)
            peers[peer.fileno()] = peer
    assert client is not None
    for number in peers:
        poll.register(number, select.EPOLLIN)
    frames = Frames(client)
    with suppress(EOFError):
        while True:
            for number, _ in poll.poll():
                peer = peers[number]
                if peer is client:
                    leader.appended(frames.read())
                elif done := leader.fetched(peer, *POSITION.unpack(peer.recv(POSITION.size))):
                    client.sendall(b"!" * done)


def follow(folder: str, port: int) -> None:
    """Take what is new, append it, ask for more."""
    file, end = opened(folder), 0
    view = memoryview(bytearray(BUFFER_BYTES))
    with connected(port, FOLLOWER) as leader:
        while True:
            head = leader.recv(POSITION.size, socket.MSG_WAITALL)
            if not head:
                return
            (size,), got = POSITION.unpack(head), 0
            while got < size:
                got += leader.recv_into(view[got:size])
            os.writev(file, list(whole(view[:size])))
            end += size
            leader.sendall(POSITION.pack(end))


def connected(port: int, role: bytes) -> socket.socket:
    """A connection to the leader."""
    peer = socket.create_connection(("127.0.0.1", port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(role)
    return peer


class BareClient:
    """Sends batches, and waits for their acknowledgements."""

    def __init__(self, leader: socket.socket) -> None:
        self._leader = leader

    @staticmethod
    def packed(body: bytes) -> bytes:
        """A batch as it is sent."""
        return HEAD.pack(len(body), crc32c(body), 0) + body

    def append(self, batches: Sequence[bytes], under_way: int) -> None:
        """All of these, so many at a time."""
        leader, waiting = self._leader, 0
        for batch in batches:
            while waiting == under_way:
                waiting -= self._acknowledged()
            leader.sendall(batch)
            waiting += 1
        while waiting:
            waiting -= self._acknowledged()

    def _acknowledged(self) -> int:
        count = len(self._leader.recv(4_096))
        if not count:
            raise EOFError("the leader is gone")
        return count


@contextmanager
def bare_replication(folder: Path) -> Iterator[BareClient]:
    """A client of three processes whose files are in a folder."""
    me = (sys.executable, "-m", "benchmarks.bare_replication")
    with ExitStack() as stack:
        for name in ("leader", "one", "two"):
            (folder / name).mkdir(parents=True)
        leader = subprocess.Popen((*me, "leader", str(folder / "leader")), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        stack.callback(leader.wait)
        stack.callback(leader.terminate)
        assert leader.stdout is not None
        port = stack.enter_context(leader.stdout).readline().strip()
        for name in ("one", "two"):
            follower = subprocess.Popen((*me, "follower", str(folder / name), port), cwd=ROOT)
            stack.callback(follower.wait)
            stack.callback(follower.terminate)
        yield BareClient(stack.enter_context(connected(int(port), CLIENT)))


if __name__ == "__main__":
    if sys.argv[1] == "leader":
        lead(sys.argv[2])
    else:
        follow(sys.argv[2], int(sys.argv[3]))
