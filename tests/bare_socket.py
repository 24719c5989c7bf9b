"""A socket that speaks the protocol to a transport, or does not: what no well-behaved peer would do, and slowly."""

from __future__ import annotations

import socket
from typing import Any

from replog.codec import decode, encode, frame_length

__all__ = ["BareSocket"]


class BareSocket:
    """One connection, before any handshake. Whatever blocks for longer than `patience_s` fails."""

    def __init__(self, endpoint: str, *, patience_s: float, receive_bytes: int = 0) -> None:
        self._patience_s = patience_s
        self._input = bytearray()
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(patience_s)
        self.socket.connect(("127.0.0.1", int(endpoint.rpartition(":")[2])))

    def send(self, message: Any, route: int = 0) -> None:
        """A message, whole."""
        self.socket.sendall(b"".join(encode(message, route)))

    def read(self) -> Any:
        """The next message; None at the end of the stream. Raises EOFError if that is in the middle of one."""
        if not self._fill(4):
            if self._input:
                raise EOFError(f"the stream ended after {len(self._input)} bytes of a frame")
            return None
        length = frame_length(bytes(self._input[:4]))
        if not self._fill(length):
            raise EOFError(f"the stream ended after {len(self._input)} of {length} bytes of a frame")
        frame = bytes(self._input[:length])
        del self._input[:length]
        return decode(frame)

    def _fill(self, size: int) -> bool:
        while len(self._input) < size:
            more = self.socket.recv(65_536)
            if not more:
                return False
            self._input += more
        return True

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
            self.socket.settimeout(self._patience_s)
        return True

    def close(self) -> None:
        """Without a word."""
        self.socket.close()
