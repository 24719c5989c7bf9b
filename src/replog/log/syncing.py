"""fsync, and the news that one has failed: the system tells it once, to whoever has asked."""

from __future__ import annotations

import os
import sys
from errno import ENOENT
from typing import Final

from replog.log.files import Fs
from replog.ports import NO_DESCRIPTORS

__all__ = ["Syncs"]

_NOT_TRIED: Final = frozenset({*NO_DESCRIPTORS, ENOENT, None})
"""Errors of what comes before an fsync, and those that are none of the system: a signal handler has raised them."""


class Syncs:
    """The fsyncs of one log directory. Any thread may ask for one."""

    __slots__ = ("_fs", "failure")

    def __init__(self, fs: Fs) -> None:
        self._fs = fs
        self.failure: int | None = 0
        """The errno that an fsync here has failed with, from that very moment on: where whoever asked for it is interrupted on the way
        (Ctrl-C, a signal handler that raises), whoever asks for the next, and who closes the directory, still finds it. 0: none has."""

    @property
    def reason(self) -> str:
        """The failure in words; empty if there was none."""
        return f"a flush failed: [Errno {self.failure}] {os.strerror(self.failure)}" if self.failure else ""

    def file(self, fd: int) -> None:
        """fsync of an open file. Raises OSError."""
        try:
            self._fs.fsync(fd)
        except OSError as error:
            if error.errno not in _NOT_TRIED:
                self.failure = error.errno  # no call before this: a signal may come with each
            raise

    def folder(self, path: str) -> None:
        """fsync of a folder: the names in it. Raises OSError."""
        outer = sys.exception()
        try:
            self._fs.fsync_dir(path)
        except OSError as error:
            if error.errno not in _NOT_TRIED:
                self.failure = error.errno
            raise
        except BaseException as interrupt:  # it may have come after the fsync, as the folder was closed
            before = interrupt.__context__
            if isinstance(before, OSError) and before is not outer and before.errno not in _NOT_TRIED:
                self.failure = before.errno
            raise
