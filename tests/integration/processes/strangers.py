"""Bare sockets that speak the protocol to a broker process, or do not: what no well-behaved peer would do, and slowly."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any, Self

from replog import messages as m
from replog.codec import FROM_CONTROLLER, PROTOCOL_VERSION, decode, encode, frame_length
from replog.model import PartitionId
from replog.records import RecordBatch, decode_records, encode_records

__all__ = ["Stranger", "body_of", "fetch", "produce", "values_of"]

PATIENCE_S = 30.0


class Stranger:
    """One connection. As a broker it has shaken hands under an id of its choice: nobody proves who they are yet."""

    def __init__(self, endpoint: str, *, receive_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", int(endpoint.rpartition(":")[2])))
        self._input = bytearray()

    def hello(self, *, role: str = "client", broker_id: int = -1, cluster_id: str = "", lane: int = 1) -> Self:
        """Shake hands."""
        self.send(m.Handshake(cluster_id, role, broker_id, -1, lane, 1, PROTOCOL_VERSION))
        answer = self.read()
        assert type(answer) is m.HandshakeAnswer, answer
        assert answer.error == 0, answer
        return self

    def send(self, message: Any, route: int = 0) -> None:
        """A message, whole."""
        self.socket.sendall(b"".join(encode(message, route)))

    def command(self, message: Any) -> None:
        """A message, as a controller sends it."""
        self.send(message, FROM_CONTROLLER)

    def read(self) -> Any:
        """The next message; None at the end of the stream, however that comes."""
        if not self._fill(4):
            return None
        length = frame_length(bytes(self._input[:4]))
        if not self._fill(length):
            return None
        frame = bytes(self._input[:length])
        del self._input[:length]
        return decode(frame)

    def read_until(self, wanted: Callable[[Any], bool]) -> Any:
        """The next message of that kind; whatever comes before is skipped. AssertionError if the stream ends."""
        while not wanted(message := self.read()):
            assert message is not None, "the stream ended"
        return message

    def _fill(self, size: int) -> bool:
        while len(self._input) < size:
            try:
                more = self.socket.recv(65_536)
            except ConnectionError:
                return False
            if not more:
                return False
            self._input += more
        return True

    @property
    def is_cut_off(self) -> bool:
        """Whether the other end has closed; what it sent before is skipped."""
        self.socket.settimeout(0)
        try:
            while self.socket.recv(1 << 20):
                pass
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)
        return True

    def close(self) -> None:
        """Without a word."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def body_of(*values: str) -> bytes:
    """A batch body."""
    return encode_records(values, now_ms=time.time_ns() // 1_000_000)


def produce(request: int, partition: PartitionId, *values: str, acks: int = -1, timeout_ms: int = 1_000) -> m.Produce:
    """One batch."""
    return m.Produce(acks, timeout_ms, [m.ProduceEntry(request, partition, body_of(*values))])


def fetch(
    request: int, partition: PartitionId, offset: int = 0, *, max_bytes: int = 1 << 20, wait_ms: int = 0, replica: int = -1
) -> m.Fetch:
    """One partition, outside of any session."""
    entry = m.FetchEntry(partition, -1, offset, -1, max_bytes)
    return m.Fetch(request, replica, -1, 0, -1, wait_ms, 1, max_bytes, [entry])


def values_of(answer: m.Fetched) -> list[str]:
    """The values of all records in an answer about one partition."""
    (entry,) = answer.entries
    found: list[str] = []
    for part in entry.slices:
        data, at = bytes(part.view()), 0
        while at < len(data):
            batch = RecordBatch.parse(data, at)
            found += [record.text() for record in decode_records(batch)]
            at += len(batch.to_bytes())
    return found
