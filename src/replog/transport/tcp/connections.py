"""All open connections of a process: when the selector or the clock says so, they are read, written, and closed."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from replog.codec import CodecError, Part
from replog.security.tls_words import words_of
from replog.transport.tcp import sockets
from replog.transport.tcp.buffers import Buffers
from replog.transport.tcp.connection import IDLE, MUTED, Connection, State, nowhere
from replog.transport.tcp.incoming import EndOfStream
from replog.transport.tcp.limits import FRAME_STEP_BYTES, TcpLimits
from replog.transport.tcp.muting import Portion
from replog.transport.tcp.outgoing import StaleSlice
from replog.transport.tcp.timers import Timers

if TYPE_CHECKING:
    from replog.security.tls import Loaded

__all__ = ["CLOSED_BY_PEER", "SECURE_AT_ONCE", "SECURING_MAX", "Connections", "Unwelcome"]

_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT
_GONE: Final = select.EPOLLERR | select.EPOLLHUP
_CONNECTING: Final = State.CONNECTING
_SECURING: Final = State.SECURING
_OPEN: Final = State.OPEN
_LEAVING: Final = State.LEAVING
_CLOSED: Final = State.CLOSED

CLOSED_BY_PEER: Final = "closed by the peer"
SECURE_AT_ONCE: Final = 4
"""Steps of TLS handshakes in one turn, of all that have dialed this process: each takes a millisecond or two in which nobody is heard."""
SECURING_MAX: Final = 64
"""While so many wait for such a step, newcomers are taken one at a time: in the kernel's queue none of their own time is lost."""


class Unwelcome(Exception):
    """A frame showed that this connection is not wanted."""


class Connections:
    """Owns every socket but those that listen.

    `connected(connection)`: the other end's kernel has answered; or it has not, with a reason. `secured(connection, reason)`: what is
    said from now on is encrypted, or why it will not be. `frame(connection, frame,
    lasting)`: a whole frame, also behind one that had the connection closed or refused; CodecError or Unwelcome from it close the
    connection. `ended(connection, reason)`: it is closed, once for each connection, whatever its state was.
    """

    def __init__(
        self,
        epoll: select.epoll,
        limits: TcpLimits,
        *,
        connected: Callable[[Connection, str], None],
        secured: Callable[[Connection, str], None],
        frame: Callable[[Connection, memoryview, bool], None],
        ended: Callable[[Connection, str], None],
    ) -> None:
        self._epoll = epoll
        self._limits = limits
        self._output_bytes_max = limits.output_bytes_max
        self._output_files_max = sockets.most_files(limits.output_files_max)
        self._connected = connected
        self._secured = secured
        self._frame = frame
        self._ended = ended
        self.buffers = Buffers()
        self.open: dict[int, Connection] = {}
        """By descriptor, oldest first."""
        self.dirty: dict[Connection, None] = {}
        """What `flush` is to do: those with something to send that it has not tried yet."""
        self.timers: Timers[Connection] = Timers()
        self.unread: dict[int, None] = {}
        """Descriptors of connections in which something waits that the selector does not know of."""
        self.securing: dict[Connection, None] = {}
        """Those that dialed this process and can go on with their TLS handshake, the first first; the selector is not asked about them.
        As of `dirty` and `unread` the selector does not tell of them: whether there are any is looked at in each turn, without a call."""
        self.output_held = 0
        """Memory of what waits to be sent, in all of them."""
        self.output_files = 0
        """Regions of files among that."""
        self.bytes_read = 0
        """Since the owner last set it to 0."""

    def add(self, connection: Connection, mask: int = _IN) -> None:
        """Look after it from now on."""
        self.open[connection.fd] = connection
        connection.take = partial(self._frame, connection)
        connection.mask = mask
        self._epoll.register(connection.fd, mask)
        self.look(connection)

    def look(self, connection: Connection) -> None:
        """Its deadline may have come nearer."""
        self.timers.look(connection, connection.deadline(self._limits)[0])

    # -------------------------------------------------------------------------------------------------------- what happens

    def ready(self, fd: int, mask: int, now_ms: int) -> None:
        """The selector says that something can be done."""
        connection = self.open.get(fd)
        if connection is None:  # closed since
            return
        if connection.state is _CONNECTING:
            failure = sockets.failure_of(connection.socket)
            if failure is not None:
                self._connected(connection, failure)
            return
        if connection.state is _SECURING:
            if connection.dialed:
                self._shake_hands(connection)
            elif connection not in self.securing:
                self.securing[connection] = None
                connection.mask = 0
                self._epoll.modify(fd, 0)
            return
        if mask & _OUT:
            self.write(connection, now_ms)
        if mask & (_IN | _GONE) and connection.state is not _CLOSED:
            if (not connection.paused and connection.muted_ms < 0) or connection.is_heard:  # the first is nearly always so, and no call
                self._read(connection, now_ms)
            elif mask & _GONE:
                self.end(connection, CLOSED_BY_PEER)

    @property
    def is_crowded(self) -> bool:
        """Whether more have come than can be secured soon."""
        return len(self.securing) >= SECURING_MAX

    def is_asked(self, fd: int) -> bool:
        """Whether a client asks there. Who has not said yet who it is may be a broker."""
        connection = self.open.get(fd)
        return connection is not None and connection.is_asked and connection.state is _OPEN

    def expire(self, now_ms: int) -> None:
        """Close what has taken too long."""
        for connection in self.timers.due(now_ms):
            at_ms, reason = connection.deadline(self._limits)
            if at_ms > now_ms:
                self.timers.look(connection, at_ms)
            elif connection.state is State.CONNECTING:
                self._connected(connection, reason)
            elif connection.state is State.REFUSING:
                self._refuse(connection, now_ms)
            elif reason == MUTED:
                self._unmute(connection, now_ms)
            elif reason == IDLE and connection.outgoing.size:  # queued first thing after a long silence: it is about to be sent
                self.timers.look(connection, now_ms + self._limits.idle_timeout_ms)
            else:
                self.end(connection, reason)

    def _read(self, connection: Connection, now_ms: int) -> None:
        if connection.state is _LEAVING:
            self._discard(connection)
            return
        incoming = connection.incoming
        frames = incoming.frames
        source = connection.socket
        if connection.limited is not None:
            source = Portion(source, connection.limited.portion_bytes)
        went_on = bool(incoming.kept)
        try:
            if went_on:
                incoming.go_on(self.buffers, connection.take)
            else:
                self.bytes_read += incoming.receive(source, self.buffers, connection.take)
            connection.heard_ms = now_ms
        except EndOfStream:
            self.end(connection, "closed by the peer within a frame" if incoming.is_partial else CLOSED_BY_PEER)
        except Unwelcome as problem:
            self.end(connection, str(problem))
        except CodecError as problem:
            self.end(connection, f"misbehaved: {problem}")
        except OSError as problem:
            self.end(connection, words_of(problem))
        except BaseException:  # some of what it said is lost
            self._broken_off(connection)
            raise
        if not (incoming.rest or incoming.large) or connection.state is _CLOSED:
            connection.frame_began_ms = -1
        elif connection.frame_began_ms < 0 or incoming.frames != frames or incoming.filled - connection.frame_filled >= FRAME_STEP_BYTES:
            connection.frame_began_ms, connection.frame_filled = now_ms, incoming.filled
            self.look(connection)
        if connection.limited is not None and not went_on:
            self._mute(connection, connection.limited.received(source.taken))
        if went_on and connection.muted_ms >= 0 and connection.state is not _CLOSED:
            self.select(connection)  # it is muted from when nothing is kept any more
        if connection.outgoing.copies:  # requests for new keys are work, as data is
            self.bytes_read += connection.socket.useless
            connection.socket.useless = 0
        if incoming.kept or connection.outgoing.copies:
            self._note_unread(connection)
        if self.buffers.held > self._limits.receive_bytes_max:
            self._make_room()

    # ------------------------------------------------------------------------------------------------------------ security

    def secure(self, connection: Connection, loaded: Loaded) -> None:
        """Speak TLS on it from now on; `secured` is told what becomes of that."""
        from replog.transport.tcp.secured import TlsSocket  # no TLS for whoever uses none

        connection.socket = TlsSocket(connection.socket, loaded, listens=not connection.dialed)
        connection.outgoing.copies = True
        connection.state = State.SECURING
        if connection.dialed:  # else the other end speaks first
            self._shake_hands(connection)

    def go_on_securing(self) -> None:
        """This turn's steps of the handshakes of those that dialed this process. Whoever is left is first in the next turn."""
        for connection in list(islice(self.securing, SECURE_AT_ONCE)):
            if self.securing.pop(connection, self) is None:  # else it was closed since
                self._shake_hands(connection)

    def _shake_hands(self, connection: Connection) -> None:
        try:
            wanted = connection.socket.shake_hands()
        except (OSError, ValueError) as problem:
            self._secured(connection, words_of(problem))
            return
        if not wanted:
            connection.state = State.GREETING
        mask = wanted or _IN
        if mask != connection.mask:
            connection.mask = mask
            self._epoll.modify(connection.fd, mask)
        if not wanted:
            self._note_unread(connection)
            self._secured(connection, "")

    def _note_unread(self, connection: Connection) -> None:
        if connection.state is _CLOSED or not connection.is_heard:
            return
        if connection.incoming.kept or (connection.outgoing.copies and connection.socket.has_decrypted):
            self.unread[connection.fd] = None

    def refuse_later(self, connection: Connection, frame: bytes, at_ms: int) -> None:
        """Say no at that time, and nothing before."""
        connection.refusal = frame, at_ms
        connection.state = State.REFUSING
        connection.paused = True
        self.select(connection)
        self.look(connection)

    def _refuse(self, connection: Connection, now_ms: int) -> None:
        frame, _ = connection.refusal or (b"", 0)
        connection.began_ms = now_ms
        connection.paused = False
        connection.state = _LEAVING
        self.send(connection, [frame], len(frame))
        self.look(connection)

    def leave(self, connection: Connection) -> None:
        """Say nothing more, and wait until the other end has heard what was said."""
        connection.state = _LEAVING
        self._say_no_more(connection)
        if not connection.is_closed:
            self.select(connection)

    def _discard(self, connection: Connection) -> None:
        """Of one that is to leave: what it sends is of no interest, but closing with it unread would destroy the reason."""
        try:
            if not connection.socket.recv_into(self.buffers.scratch):
                self.end(connection, CLOSED_BY_PEER)
        except BlockingIOError:
            pass
        except OSError as problem:
            self.end(connection, words_of(problem))

    def _make_room(self) -> None:
        """The half-received frames of all take too much: whoever holds most goes, clients first."""
        holders = [connection for connection in self.open.values() if connection.incoming.held]
        most = max(holders, key=lambda one: (one.peer_id < 0, one.incoming.held))
        self.end(most, f"half-received frames take more than {self._limits.receive_bytes_max} bytes")

    def holds_files(self, connection: Connection) -> bool:
        """Whether a client has enough files open by what it does not take; with any, where all together have."""
        files = connection.outgoing.files
        return files >= self._output_files_max or (files > 0 and self.output_files >= 4 * self._output_files_max)

    def bound_output(self) -> None:
        """What waits to be sent takes too much: whoever holds most of it goes, clients first."""
        self.output_held = sum(connection.outgoing.held for connection in self.open.values())
        while self.output_held > self._limits.output_bytes_total_max:
            holders = [connection for connection in self.open.values() if connection.outgoing.held]
            most = max(holders, key=lambda one: (one.peer_id < 0, one.outgoing.held))
            self.end(most, f"what waits for all takes more than {self._limits.output_bytes_total_max} bytes", abort=True)

    # -------------------------------------------------------------------------------------------------------------- quotas

    def _mute(self, connection: Connection, until_ms: int) -> None:
        """Do not hear it until then; -1: nothing is to be done."""
        if until_ms > connection.muted_ms and connection.state is _OPEN:
            connection.muted_ms = until_ms
            self.select(connection)
            self.look(connection)

    def _unmute(self, connection: Connection, now_ms: int) -> None:
        connection.muted_ms = -1
        connection.heard_ms = now_ms  # nobody knows what it would have said
        if connection.frame_began_ms >= 0:
            connection.frame_began_ms = now_ms  # it could not go on
        self.select(connection)
        self._note_unread(connection)
        self.look(connection)

    # ------------------------------------------------------------------------------------------------------------- writing

    def send(self, connection: Connection, parts: Sequence[bytes | Part], size: int) -> None:
        """Queue a frame; `flush` sends it."""
        outgoing = connection.outgoing
        held, files = outgoing.held, outgoing.files
        try:
            outgoing.add(parts, size)
            self.output_held += outgoing.held - held
            self.output_files += outgoing.files - files
            self.dirty[connection] = None
        except BaseException:  # half a frame may wait
            self._broken_off(connection)
            raise
        is_full = outgoing.size > self._output_bytes_max or outgoing.files >= self._output_files_max
        if is_full and connection.is_asked and not connection.paused:
            connection.paused = True  # only of clients: two brokers that wait for each other to read would wait for ever
            self.select(connection)
        if connection.limited is not None:
            self._mute(connection, connection.limited.sent(size))

    def flush(self, now_ms: int) -> None:
        """Write what is queued, as far as sockets take it."""
        while self.dirty:
            for connection in list(self.dirty):
                if connection not in self.dirty:  # closed since
                    continue
                if connection.state is not _CONNECTING and not connection.mask & _OUT:  # else the selector says when
                    connection.taken_ms = now_ms  # nothing has waited until now
                    self.write(connection, now_ms)
                self.dirty.pop(connection, None)  # only now: an interrupt leaves it to the next flush

    def write(self, connection: Connection, now_ms: int) -> None:
        """Write what waits for one peer."""
        connection.unwritten.clear()
        outgoing = connection.outgoing
        held, files = outgoing.held, outgoing.files
        failure: Exception | None = None
        try:
            if outgoing.write(connection.socket):
                connection.taken_ms = now_ms
        except (StaleSlice, OSError) as problem:
            failure = problem
        except BaseException:  # how much was taken is not known
            self._broken_off(connection)
            raise
        self.output_held -= held - outgoing.held
        self.output_files -= files - outgoing.files
        if failure is not None:
            self._unwritable(connection, failure)
            if connection.is_closed:
                return
        if not outgoing.size and connection.mask == _IN and connection.state is _OPEN:
            return  # nothing waits, and the selector knows
        if connection.paused and 2 * outgoing.size <= self._output_bytes_max and 2 * outgoing.files <= self._output_files_max:
            connection.paused = False
            if connection.frame_began_ms >= 0:
                connection.frame_began_ms = now_ms  # it could not go on
            self._note_unread(connection)
        if not outgoing.size and connection.state is State.LEAVING and not connection.said_last:
            self._say_no_more(connection)
            if connection.is_closed:
                return
        self.select(connection)
        if outgoing.size:
            self.look(connection)

    def _unwritable(self, connection: Connection, failure: Exception) -> None:
        """It takes nothing more. If it has just gone, what it had said before is heard first."""
        if connection.incoming.kept and isinstance(failure, (BrokenPipeError, ConnectionResetError)):
            self.output_held -= connection.outgoing.held
            self.output_files -= connection.outgoing.files
            connection.outgoing.drop()
        elif isinstance(failure, StaleSlice):
            self.end(connection, "a log was truncated below what was being sent", abort=True)
        else:
            self.end(connection, words_of(failure), abort=True)

    def select(self, connection: Connection) -> None:
        """Tell the selector what this connection waits for."""
        mask = (_IN if connection.is_heard else 0) | (_OUT if connection.outgoing.size else 0)
        if mask != connection.mask:
            connection.mask = mask
            self._epoll.modify(connection.fd, mask)

    def _say_no_more(self, connection: Connection) -> None:
        connection.said_last = True
        try:
            connection.socket.shutdown(socket.SHUT_WR)
        except OSError as problem:
            self.end(connection, words_of(problem))

    # ------------------------------------------------------------------------------------------------------------- closing

    def end(self, connection: Connection, reason: str, *, abort: bool = False) -> None:
        """Close it now and forget what waits; with `abort`, so does the kernel. Idempotent."""
        if connection.is_closed:
            return
        self._close(connection, abort=abort)
        try:
            self._ended(connection, reason)  # which may send what waits on another one
        finally:
            connection.outgoing.drop()

    def _broken_off(self, connection: Connection) -> None:
        """An interrupt came in the middle of a word that is said on it: what the other end takes for the next would be something else."""
        self.end(connection, "a message was broken off here")
        self.output_held = sum(each.outgoing.held for each in self.open.values())
        self.output_files = sum(each.outgoing.files for each in self.open.values())

    def let_go(self, connection: Connection, *, abort: bool = False) -> None:
        """Close the socket without telling anybody."""
        self._close(connection, abort=abort)
        connection.outgoing.drop()

    def _close(self, connection: Connection, *, abort: bool) -> None:
        connection.state = State.CLOSED
        self.output_held -= connection.outgoing.held
        self.output_files -= connection.outgoing.files
        connection.take = nowhere  # no circle is left
        self.timers.forget(connection)
        self.dirty.pop(connection, None)
        self.unread.pop(connection.fd, None)
        self.securing.pop(connection, None)
        del self.open[connection.fd]
        with suppress(OSError):  # it never got there
            self._epoll.unregister(connection.fd)
        connection.incoming.drop(self.buffers)
        if abort:
            sockets.abort(connection.socket)
        else:
            connection.socket.close()

    def abandon(self) -> None:
        """In a forked child: close the descriptors, and tell the kernel nothing that the parent would feel."""
        for connection in self.open.values():
            connection.state = State.CLOSED
            connection.outgoing.drop()
            os.close(connection.socket.detach())
        self.open.clear()
        self.dirty.clear()
