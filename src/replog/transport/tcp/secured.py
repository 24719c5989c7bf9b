"""A socket that speaks TLS, as connections use sockets: it never blocks, and what cannot go on now is BlockingIOError.

Regions of files cannot be handed to the kernel here (`Outgoing.copies`): their bytes are read, and encrypted in this process.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final

from replog.security.certificates import certified
from replog.security.identity import Identity
from replog.security.tls import Loaded, fingerprint

__all__ = ["TlsSocket"]

RECORD_BYTES: Final = 16 << 10
"""TLS encrypts so much at a time (RFC 8446, section 5.1)."""
GATHERED_BYTES: Final = 64 << 10
"""Small buffers are joined up to this, so that they share records."""
RECORDS_AT_ONCE: Final = 256
"""Read in one go: a record may hold a single byte, and a quarter of a million of them took the better part of a second."""


class TlsSocket:
    """One end of a connection over a connected, non-blocking socket, which it takes over. Raises OSError, as sockets do."""

    __slots__ = ("_listener", "_socket")

    def __init__(self, plain: socket.socket, loaded: Loaded, *, listens: bool) -> None:
        self._listener = loaded.fingerprint if listens else b""
        self._socket = loaded.context.wrap_socket(plain, server_side=listens, do_handshake_on_connect=False)

    def shake_hands(self) -> int:
        """Go on with the handshake: 0 once it is done, else what the selector is to wait for. Raises OSError (ssl.SSLError) if it fails."""
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return select.EPOLLIN
        except ssl.SSLWantWriteError:
            return select.EPOLLOUT
        return 0

    @property
    def identity(self) -> Identity | None:
        """Whom the verified certificate of the other end names."""
        return certified(self._socket.getpeercert())

    @property
    def channel(self) -> bytes:
        """What both ends know of this connection and nobody in between could bring about: the listener's certificate."""
        return self._listener or fingerprint(self._socket.getpeercert(binary_form=True) or b"")

    @property
    def has_decrypted(self) -> bool:
        """Whether something waits to be read of which the selector knows nothing."""
        return self._socket.pending() > 0

    # ---------------------------------------------------------------------------------------------------------- as a socket

    def fileno(self) -> int:
        """The descriptor; -1 once closed."""
        return self._socket.fileno()

    def recv_into(self, buffer: Any) -> int:
        """Fill the buffer as far as something is there: records are smaller than buffers."""
        view, filled = memoryview(buffer), 0
        for _ in range(RECORDS_AT_ONCE):
            if filled == len(view):
                break
            try:
                size = self._socket.recv_into(view[filled:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                if filled:  # first what came before it; it is said again the next time
                    break
                raise
            if not size:
                return filled
            filled += size
        if not filled:
            raise BlockingIOError
        return filled

    def send(self, data: Any) -> int:
        """Send what the socket takes; returns how much, at least a byte.

        What a record has been made of must be given again before anything else: a queue from whose begin everybody sends does that.
        """
        view = memoryview(data)
        sent = 0
        while sent < len(view):
            try:
                sent += self._socket.send(view[sent : sent + RECORD_BYTES])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
        if not sent:
            raise BlockingIOError
        return sent

    def sendmsg(self, buffers: Sequence[Any], ancillary: Sequence[Any] = (), flags: int = 0) -> int:
        """Send from the begin of the buffers what the socket takes; returns how much."""
        first = memoryview(buffers[0]).cast("B")
        if len(first) >= GATHERED_BYTES or len(buffers) == 1:
            return self.send(first)
        gathered = bytearray()
        for buffer in buffers:
            gathered += memoryview(buffer)[: GATHERED_BYTES - len(gathered)]
            if len(gathered) >= GATHERED_BYTES:
                break
        return self.send(gathered)

    def setsockopt(self, *option: Any) -> None:
        """As the socket's."""
        self._socket.setsockopt(*option)

    def shutdown(self, how: int) -> None:
        """As the socket's, after which what comes is neither decrypted nor believed."""
        self._socket.shutdown(how)

    def detach(self) -> int:
        """The descriptor, which is the caller's to close; the other end hears nothing."""
        return self._socket.detach()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
