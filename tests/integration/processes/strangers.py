"""Bare sockets that speak the protocol to a broker process, or do not, and what they say."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

from tests.bare_socket import BareSocket

from replog import messages as m
from replog.codec import FROM_CONTROLLER, PROTOCOL_VERSION
from replog.model import PartitionId
from replog.records import RecordBatch, decode_records, encode_records

__all__ = ["Stranger", "body_of", "fetch", "produce", "values_of"]

PATIENCE_S = 30.0


class Stranger(BareSocket):
    """One connection. As a broker it has shaken hands under an id of its choice: nobody proves who they are yet."""

    def __init__(self, endpoint: str, *, receive_bytes: int = 0) -> None:
        super().__init__(endpoint, patience_s=PATIENCE_S, receive_bytes=receive_bytes)

    def hello(self, *, role: str = "client", broker_id: int = -1, cluster_id: str = "", lane: int = 1) -> Self:
        """Shake hands."""
        self.send(m.Handshake(cluster_id, role, broker_id, -1, lane, 1, PROTOCOL_VERSION))
        answer = self.read()
        assert type(answer) is m.HandshakeAnswer, answer
        assert answer.error == 0, answer
        return self

    def command(self, message: Any) -> None:
        """A message, as a controller sends it."""
        self.send(message, FROM_CONTROLLER)

    def read(self) -> Any:
        """The next message; None at the end of the stream, however that comes."""
        try:
            return super().read()
        except (ConnectionError, EOFError):
            return None

    def read_until(self, wanted: Callable[[Any], bool]) -> Any:
        """The next message of that kind; whatever comes before is skipped. AssertionError if the stream ends."""
        while not wanted(message := self.read()):
            assert message is not None, "the stream ended"
        return message

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
