"""From a byte stream to frames: those that arrive whole are taken where they lie, only the rest of one is kept."""

from __future__ import annotations

import socket
from collections.abc import Callable
from struct import Struct
from sys import maxsize
from typing import Final

from replog.codec import HEADER, frame_length
from replog.transport.tcp.buffers import FRESH_BYTES, SCRATCH_BYTES, Buffers, grow

__all__ = ["TURN_BYTES", "EndOfStream", "Incoming", "Take"]

_LENGTH: Final = Struct("<I").unpack_from
TURN_BYTES: Final = 512 << 10
"""Read from one connection before the others have their turn."""

Take = Callable[[memoryview, bool], None]
"""Told each whole frame, and whether it lies in a buffer of its own; otherwise it is overwritten when the call has returned."""


class EndOfStream(Exception):
    """The peer will send nothing more."""


class Incoming:
    """What one connection has received of a frame that is not whole, and of whole ones that are too many for one turn. It owns nothing
    between frames."""

    __slots__ = ("_at_once", "_filled", "_length", "_until", "frame_bytes_max", "frames", "kept", "large", "rest")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.frames = 0
        """Whole frames so far."""
        self.kept = b""
        """What has been read and is for another turn: begins with a whole frame, if it is not empty."""
        self._at_once = self._until = maxsize  # frames to hand over in one turn; and which is the last of this one
        self.rest = b""
        """Less than FRESH_BYTES of a frame, or not even its length."""
        self.large: bytearray | None = None
        """A longer part of one. With both empty no frame has begun, which is looked at after each read: `is_partial` cost that a call."""
        self._filled = 0
        self._length = 0

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return len(self.kept) + (len(self.rest) if self.large is None else len(self.large))

    @property
    def filled(self) -> int:
        """Bytes of the frame that has begun."""
        return len(self.rest) if self.large is None else self._filled

    @property
    def is_partial(self) -> bool:
        """Whether a frame has begun that is not whole."""
        return bool(self.rest) or self.large is not None

    def receive(self, source: socket.socket, buffers: Buffers, take: Take) -> int:
        """Read what is there, at most about TURN_BYTES, and hand over each whole frame; returns the bytes read.

        Raises EndOfStream after the last frame, CodecError for a length that is not allowed, OSError, and what `take` raises.
        After any of these the connection cannot be read on.
        """
        total, self._until = 0, self.frames + self._at_once
        if self.large is None and not self.rest:
            total = self._begin(source, buffers, take)
            if total < SCRATCH_BYTES or self.kept:  # nearly always: there is no more
                return total
        held = self.held
        try:
            while total < TURN_BYTES:
                part = self._receive(source, buffers, take)
                if part <= 0:
                    return total - part
                total += part
                if self.kept:
                    break
            return total
        finally:
            buffers.held += self.held - held

    def _begin(self, source: socket.socket, buffers: Buffers, take: Take) -> int:
        """The first read while nothing is owned; returns its bytes."""
        scratch = buffers.scratch
        try:
            size = source.recv_into(scratch)
        except BlockingIOError:
            return 0
        if not size:
            raise EndOfStream
        if size >= HEADER.size and _LENGTH(scratch)[0] + 4 == size <= self.frame_bytes_max:  # nearly always: one frame, and whole
            self.frames += 1
            take(scratch[:size], False)
            return size
        try:
            self._split(scratch, size, buffers, take)
        finally:
            buffers.held += self.held
        return size

    def bound(self, frames: int) -> None:
        """Hand over so many frames in one turn from now on, and in this one."""
        self._at_once = frames
        self._until = self.frames + frames

    def pause(self) -> None:
        """Hand over no further frame in this turn."""
        self._until = self.frames

    def go_on(self, buffers: Buffers, take: Take) -> None:
        """The next turn of what is kept: hand over the frames in it, as `receive` does, and read nothing. Raises as that does."""
        held, kept = self.held, self.kept
        self.kept, self._until = b"", self.frames + self._at_once
        try:
            self._split(memoryview(kept), len(kept), buffers, take)
        finally:
            buffers.held += self.held - held

    def drop(self, buffers: Buffers) -> None:
        """Forget the frame that has begun, and what is kept."""
        buffers.held -= self.held
        self.rest, self.large, self.kept = b"", None, b""

    def _receive(self, source: socket.socket, buffers: Buffers, take: Take) -> int:
        """One read: bytes if there may be more, else minus that."""
        large, rest = self.large, self.rest
        try:
            if large is not None:
                asked = min(len(large), self._length) - self._filled
                with memoryview(large)[self._filled : self._filled + asked] as room:
                    size = source.recv_into(room)
            else:
                begin = len(rest)
                buffers.scratch[:begin] = rest
                asked = SCRATCH_BYTES - begin
                size = source.recv_into(buffers.scratch[begin:])
        except BlockingIOError:
            return 0
        if not size:
            raise EndOfStream
        if large is not None:
            self._assemble(large, size, buffers, take)
        else:
            self._split(buffers.scratch, len(rest) + size, buffers, take)
        return size if size == asked else -size

    def _assemble(self, large: bytearray, size: int, buffers: Buffers, take: Take) -> None:
        """More of a frame that has its own buffer."""
        self._filled += size
        if self._filled == self._length:
            self.large = None
            self.frames += 1
            take(memoryview(large)[: self._length], True)
            buffers.give(large)
        elif self._filled == len(large):
            grow(large, min(self._length, 2 * len(large)))  # as bytes arrive: a claim costs nothing

    def _split(self, scratch: memoryview, stop: int, buffers: Buffers, take: Take) -> None:
        """Whole frames in a buffer; what is left behind them is kept."""
        at = length = 0
        while stop - at >= 4:
            length = _LENGTH(scratch, at)[0] + 4
            if length < HEADER.size or length > self.frame_bytes_max:
                frame_length(scratch[at : at + 4], frame_bytes_max=self.frame_bytes_max)  # which says what is wrong
            if stop - at < length:
                break
            if self.frames >= self._until:
                self.rest, self.kept = b"", bytes(scratch[at:stop])
                return
            self.frames += 1
            take(scratch[at : at + length], False)
            at += length
        left = stop - at
        if not left:
            self.rest = b""
            return
        if left < 4 or length <= FRESH_BYTES:
            self.rest = bytes(scratch[at:stop])
            return
        self.rest, self._length, self._filled = b"", length, left
        self.large = buffers.take(length, left)
        self.large[:left] = scratch[at:stop]
