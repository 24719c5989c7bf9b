"""Sockets as this transport wants them: non-blocking, without delay, and sure to notice a peer that is gone."""

from __future__ import annotations

import errno
import resource
import socket
import struct
from contextlib import suppress
from typing import Final

from replog.transport.tcp.endpoint import SocketAddress

__all__ = ["BACKLOG", "abort", "accept", "connect", "failure_of", "listen", "most"]

BACKLOG: Final = 512
_PROBES: Final = 3
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


def most(wanted: int) -> int:
    """So many connections, or what is left to them where files need descriptors as well."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if allowed == resource.RLIM_INFINITY else min(wanted, max(allowed * 3 // 4, 1))


def most_files(wanted: int) -> int:
    """So many files that one client keeps open, or what is its share of the descriptors."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if allowed == resource.RLIM_INFINITY else min(wanted, max(allowed // 32, 1))


def listen(address: SocketAddress) -> socket.socket:
    """A socket that accepts connections at this address. Raises OSError."""
    listener = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address.family == socket.AF_INET6:  # whoever means IPv6 is not found to be open to IPv4 as well
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def accept(listener: socket.socket, dead_after_ms: int) -> tuple[socket.socket, str] | None:
    """The next connection and where it comes from; None if there is none now. Raises OSError, also for a lack of descriptors."""
    try:
        accepted, address = listener.accept()
    except (BlockingIOError, ConnectionAbortedError):
        return None
    try:
        _prepare(accepted, dead_after_ms)
    except OSError:  # it is gone already
        accepted.close()
        return None
    return accepted, f"{address[0]}:{address[1]}"


def connect(address: SocketAddress, dead_after_ms: int) -> socket.socket:
    """A socket that is being connected. Raises OSError if that fails at once."""
    dialed = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        _prepare(dialed, dead_after_ms)
        status = dialed.connect_ex((address.host, address.port))
        if status not in (0, errno.EINPROGRESS, errno.EINTR):
            raise OSError(status, errno.errorcode.get(status, "?"))
    except BaseException:
        dialed.close()
        raise
    return dialed


def failure_of(dialed: socket.socket) -> str | None:
    """Why it could not be connected; "" if it is connected, None if that is not known yet."""
    status = dialed.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if status:
        return errno.errorcode.get(status, str(status))
    try:
        # Nobody listens, and the kernel gave this socket the very port that it dials: it has reached itself.
        return "ECONNREFUSED" if dialed.getpeername() == dialed.getsockname() else ""
    except OSError:
        return None


def abort(connection: socket.socket) -> None:
    """Close it so that nothing more of what the kernel holds is sent."""
    with suppress(OSError):  # it is closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    connection.close()


def _prepare(connection: socket.socket, dead_after_ms: int) -> None:
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        # Asked after half of the time, and then _PROBES times more: of five thousand that are asked at once some questions are lost.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(dead_after_ms // 2_000, 1))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(dead_after_ms // (2_000 * _PROBES), 1))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, dead_after_ms)
