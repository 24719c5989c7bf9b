"""A peer that has TLS make new keys, which the module `ssl` cannot ask for: OpenSSL itself does it."""

from __future__ import annotations

import ctypes
import ctypes.util
import socket
from pathlib import Path
from typing import Any

__all__ = ["Renewing"]


def library() -> Any:
    """OpenSSL itself: a module `ssl` cannot ask for new keys."""
    maps = Path("/proc/self/maps")
    loaded = [line.split()[-1] for line in maps.read_text().splitlines() if "libssl" in line] if maps.exists() else []
    name = loaded[0] if loaded else ctypes.util.find_library("ssl")
    assert name, "there is no library of OpenSSL"
    found = ctypes.CDLL(name)
    for function in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(found, function).restype = ctypes.c_void_p
    return found


class Renewing:
    """A client over a connected, non-blocking socket that asks for new keys as often as it likes."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.renewed = 0
        self._ssl = library()
        self._context = ctypes.c_void_p(self._ssl.SSL_CTX_new(ctypes.c_void_p(self._ssl.TLS_client_method())))
        self._own = ctypes.c_void_p(self._ssl.SSL_new(self._context))
        self._ssl.SSL_set_fd(self._own, sock.fileno())
        self._ssl.SSL_set_connect_state(self._own)

    def shake_hands(self) -> bool:
        return bool(self._ssl.SSL_do_handshake(self._own) == 1)

    def renew(self, count: int, *, asks: bool = False) -> int:
        """Take new keys so often, or until the socket takes no more, and with `asks` have the other end do so; returns how often."""
        before = self.renewed
        for _ in range(count):
            self._ssl.SSL_key_update(self._own, int(asks))
            if self._ssl.SSL_do_handshake(self._own) != 1:
                break
            self.renewed += 1
        return self.renewed - before

    def say(self, data: bytes) -> bool:
        return bool(self._ssl.SSL_write(self._own, data, len(data)) == len(data))

    def hear(self) -> bytes:
        """Everything that is there."""
        heard, buffer = b"", ctypes.create_string_buffer(1 << 16)
        while (size := self._ssl.SSL_read(self._own, buffer, len(buffer))) > 0:
            heard += buffer.raw[:size]
        return heard

    def close(self) -> None:
        self._ssl.SSL_free(self._own)
        self._ssl.SSL_CTX_free(self._context)
        self.socket.close()
