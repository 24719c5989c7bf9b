"""A socket that speaks TLS, as connections use sockets: it never blocks, and what cannot go on now is BlockingIOError.

OpenSSL reads no socket here: it is fed. On a socket, it goes on within one call for as long as what comes is no data (requests for new
keys, above all), and a process that runs one loop hears nobody else meanwhile.

Regions of files cannot be handed to the kernel here (`Outgoing.copies`): their bytes are read, and encrypted in this process.
"""

from __future__ import annotations

import errno
import select
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
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
FED_BYTES: Final = RECORD_BYTES + 22
"""OpenSSL is fed so much at a time, a full record of ours: its memory for what it was fed never shrinks."""
USELESS_BYTES_MAX: Final = 32 << 10
"""Once so much was fed in one go of which no data has come, the rest waits: as requests for new keys they take some ten milliseconds."""
UNSENT_BYTES_MAX: Final = 64 << 10
"""Of answers to such requests and what is before them. Whoever asks further and does not take the answers is cut off."""


class TlsSocket:
    """One end of a connection over a connected, non-blocking socket, which it takes over. Raises OSError, as sockets do."""

    __slots__ = (
        "_failure", "_fed", "_is_shut", "_made", "_may_decrypt", "_sealed", "_sealed_left", "_socket", "_tls", "_unsent",
        "channel", "identity", "useless"
    )  # fmt: skip

    def __init__(self, plain: socket.socket, loaded: Loaded, *, listens: bool) -> None:
        try:
            plain.getpeername()
        except OSError as problem:
            raise ConnectionResetError(errno.ECONNRESET, "it has reset the connection before TLS began") from problem
        self._socket = plain
        self._fed, self._made = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = loaded.context.wrap_bio(self._fed, self._made, server_side=listens)
        self._may_decrypt = False  # whether something was fed that has not been looked at
        self._failure: OSError | None = None  # why nothing more can be read: said after what came before it
        self._unsent = b""  # encrypted; what is in `_made` comes after it
        self._sealed = 0  # bytes of data in them of which nobody was told yet that they are sent
        self._sealed_left = 0  # encrypted bytes to be sent until these are: answers to the other end may come behind them
        self._is_shut = False
        self.useless = 0
        """Bytes that were read and have brought no data, since the owner last set it to 0."""
        self.identity: Identity | None = None
        """After the handshake: whom the verified certificate of the other end names; None: nobody, or in what is no UTF-8."""
        self.channel = loaded.fingerprint if listens else b""
        """After it: what both ends know of this connection and nobody in between could bring about: the listener's certificate."""

    def shake_hands(self) -> int:
        """Go on with the handshake: 0 once it is done, else what the selector is to wait for. Raises OSError (ssl.SSLError) if it fails."""
        if not self._flush():
            return select.EPOLLOUT
        self._feed()
        try:
            self._tls.do_handshake()
            wanted = 0
            self._look_at_the_other()
        except ssl.SSLWantReadError:
            wanted = select.EPOLLIN
        except OSError:
            self._try_flush()  # the alert
            raise
        self._may_decrypt = self._fed.pending > 0
        return wanted if self._flush() else select.EPOLLOUT

    def _look_at_the_other(self) -> None:
        """Now: OpenSSL no longer says who it was once the connection has failed, and what came before that is still to be handled."""
        with suppress(UnicodeDecodeError):
            self.identity = certified(self._tls.getpeercert())
        self.channel = self.channel or fingerprint(self._tls.getpeercert(binary_form=True) or b"")

    @property
    def has_decrypted(self) -> bool:
        """Whether something waits to be read of which the selector knows nothing."""
        return (self._may_decrypt or self._failure is not None) and not self._is_shut

    # ---------------------------------------------------------------------------------------------------------- as a socket

    def fileno(self) -> int:
        """The descriptor; -1 once closed."""
        return self._socket.fileno()

    def recv_into(self, buffer: Any) -> int:
        """Fill the buffer as far as something is there: records are smaller than buffers."""
        if self._is_shut:
            return self._socket.recv_into(buffer)
        view = memoryview(buffer)
        filled = 0
        try:
            filled, is_over = self._decrypt(view)
        finally:
            if self._made.pending:
                self._answer()
        if not filled and not is_over:
            raise BlockingIOError
        return filled

    def send(self, data: Any) -> int:
        """Send what the socket takes; returns how much, at least a byte.

        What a record has been made of must be given again before anything else: a queue from whose begin everybody sends does that.
        It was sent when the last byte of the record was: before that, the other end cannot read it.
        """
        view = memoryview(data)
        sent = 0
        while True:
            is_gone = self._flush()
            if self._sealed_left <= 0:
                sent += self._sealed
                self._sealed = 0
            if not is_gone or sent >= len(view):
                break
            try:
                self._sealed = self._tls.write(view[sent : sent + RECORD_BYTES])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            self._sealed_left = self._made.pending
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
        self._is_shut = True
        self._socket.shutdown(how)

    def detach(self) -> int:
        """The descriptor, which is the caller's to close; the other end hears nothing."""
        return self._socket.detach()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    # ---------------------------------------------------------------------------------------------------- what OpenSSL is given

    def _decrypt(self, view: memoryview) -> tuple[int, bool]:
        """How much of the buffer is filled, and whether that was the last."""
        filled = fed = 0
        may_feed = True
        try:
            if self._failure is not None:
                raise self._failure
            for _ in range(RECORDS_AT_ONCE):
                if filled == len(view):
                    break
                if not self._may_decrypt:
                    if not may_feed or fed - filled >= USELESS_BYTES_MAX:
                        break
                    size = self._feed()
                    fed += size
                    may_feed = size == FED_BYTES  # else the socket has no more
                    continue
                try:
                    size = self._tls.read(len(view) - filled, view[filled:])  # type: ignore[assignment]
                except ssl.SSLWantReadError:
                    self._may_decrypt = False
                    continue
                except ssl.SSLEOFError:
                    size = 0
                if not size:
                    return filled, True
                filled += size
                self._may_decrypt = self._fed.pending > 0 or self._tls.pending() > 0
        except OSError as problem:
            if not filled:
                raise
            self._failure = problem.with_traceback(None)  # which would keep the buffer in use
        finally:
            self.useless += max(fed - filled, 0)
        return filled, False

    def _feed(self) -> int:
        """Read once from the socket; returns the bytes. OSError, but not if there are none."""
        try:
            data = self._socket.recv(FED_BYTES)
        except BlockingIOError:
            return 0
        self._may_decrypt = True
        if data:
            self._fed.write(data)
        else:
            self._fed.write_eof()
        return len(data)

    def _flush(self) -> bool:
        """Whether the socket has taken all that was encrypted."""
        while True:
            if not self._unsent:
                if not self._made.pending:
                    return True
                self._unsent = self._made.read()
            try:
                size = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[size:]
            self._sealed_left -= size

    def _try_flush(self) -> bool:
        """The same, where a failure is heard of otherwise: the next that is read or sent fails as well."""
        with suppress(OSError):
            return self._flush()
        return False

    def _answer(self) -> None:
        """Send what was encrypted by reading. It need not arrive before the next data (RFC 8446, section 4.6.3), which goes after it.

        Data that waits is sent by whoever has given it, who would otherwise not know that it has gone.
        """
        is_gone = not self._sealed and self._try_flush()
        if not is_gone and len(self._unsent) + self._made.pending > UNSENT_BYTES_MAX:
            raise OSError(errno.EPROTO, "it asks for new keys and does not take the answers")
