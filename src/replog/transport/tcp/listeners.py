"""The sockets that listen: one per broker of this process, or several; and what is accepted on them."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from attrs import define

from replog.errors import UsageError
from replog.transport.tcp import sockets
from replog.transport.tcp.endpoint import addresses_of, parse_endpoint
from replog.transport.tcp.limits import TcpLimits

__all__ = ["Listener", "Listeners"]

ACCEPTED_AT_ONCE: Final = 64
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@define(eq=False)
class Listener:
    """One socket, and the broker that is reached through it."""

    socket: socket.socket
    broker_id: int
    endpoint: str
    resume_ms: int | None = None
    """Accepts nothing until then."""


class Listeners:
    """Accepts; `accepted(listener, socket, name)` decides what becomes of a connection."""

    def __init__(
        self,
        epoll: select.epoll,
        limits: TcpLimits,
        accepted: Callable[[Listener, socket.socket, str], None],
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._epoll = epoll
        self._limits = limits
        self._accepted = accepted
        self._on_event = on_event
        self.by_fd: dict[int, Listener] = {}
        self.paused = False
        """Whether any of them accepts nothing for now."""

    def serve(self, text: str, broker_id: int, *, insecure: bool, encrypted: bool) -> str:
        """Listen there for a broker; returns the endpoint with its real port. Raises UsageError if that cannot be."""
        endpoint = parse_endpoint(text)
        if not endpoint.is_loopback and not encrypted:
            if not insecure:
                raise UsageError(
                    f"{text} can be reached from other machines, and what is said there is not protected by TLS; listen on 127.0.0.1 "
                    "or [::1], give security= with tls, or say insecure=True"
                )
            self._on_event("listens_insecurely", {"endpoint": text, "broker": broker_id})
        try:
            listening = sockets.listen(addresses_of(endpoint)[0])
        except (OSError, UnicodeError) as problem:
            raise UsageError(f"cannot listen on {text}: {getattr(problem, 'strerror', None) or problem}") from problem
        fd = listening.fileno()
        try:
            real = str(endpoint._replace(port=listening.getsockname()[1]))
            self._epoll.register(fd, select.EPOLLIN)
            self.by_fd[fd] = Listener(listening, broker_id, real)
        except BaseException:  # the port would be taken for as long as somebody keeps the exception
            self.by_fd.pop(fd, None)
            listening.close()
            raise
        return real

    def stop(self, broker_id: int) -> None:
        """Listen no longer for a broker. Idempotent."""
        for fd, listener in list(self.by_fd.items()):
            if listener.broker_id == broker_id:
                del self.by_fd[fd]
                if listener.resume_ms is None:
                    self._epoll.unregister(fd)
                listener.socket.close()

    def ready(self, fd: int, now_ms: int, *, one: bool = False) -> None:
        """Accept what waits, but not for ever; with `one` no more than that."""
        listener = self.by_fd[fd]
        if listener.resume_ms is not None:  # paused in a turn that was broken off, perhaps in the middle of that
            with suppress(FileNotFoundError):
                self._epoll.unregister(fd)
            return
        for _ in range(1 if one else ACCEPTED_AT_ONCE):
            try:
                pair = sockets.accept(listener.socket, self._limits.stalled_timeout_ms)
            except OSError as problem:
                if problem.errno in _EXHAUSTED:
                    self._pause(listener, problem, now_ms)
                return  # else: an error of the connection that was to be accepted
            if pair is None:
                return
            self._accepted(listener, *pair)
            if fd not in self.by_fd:
                return

    def next_ms(self) -> int | None:
        """When one that was paused accepts again."""
        return min((one.resume_ms for one in self.by_fd.values() if one.resume_ms is not None), default=None)

    def resume(self, now_ms: int) -> None:
        """Let those accept again that were paused for long enough."""
        if not self.paused:
            return
        for fd, listener in self.by_fd.items():
            if listener.resume_ms is not None and listener.resume_ms <= now_ms:
                with suppress(FileExistsError):  # an interrupt kept it from being taken out
                    self._epoll.register(fd, select.EPOLLIN)
                listener.resume_ms = None
        self.paused = any(one.resume_ms is not None for one in self.by_fd.values())

    def _pause(self, listener: Listener, problem: OSError, now_ms: int) -> None:
        """Out of descriptors or memory: the selector would say at once that somebody still waits."""
        self.paused = True
        listener.resume_ms = now_ms + self._limits.accept_pause_ms
        self._epoll.unregister(listener.socket.fileno())
        self._on_event("accept_paused", {"endpoint": listener.endpoint, "reason": problem.strerror, "ms": self._limits.accept_pause_ms})

    def close(self) -> None:
        """Close them all."""
        for broker_id in sorted({listener.broker_id for listener in self.by_fd.values()}):
            self.stop(broker_id)

    def abandon(self) -> None:
        """In a forked child: close the descriptors alone."""
        for listener in self.by_fd.values():
            os.close(listener.socket.detach())
        self.by_fd.clear()
