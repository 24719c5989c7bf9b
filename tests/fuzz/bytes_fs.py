"""A file system of bytes that are there already."""

from __future__ import annotations

import errno
from typing import Any

from replog.log.files import Fs

__all__ = ["BytesFs"]


class BytesFs(Fs):
    """One file, which is `data`, whatever it is called."""

    def __init__(self, data: bytes, other: bytes = b"") -> None:
        self.files = {1: data, 2: other}

    def open(self, path: str, *, create: bool = False) -> int:
        return 2

    def close(self, fd: int) -> None:
        pass

    def pread(self, fd: int, count: int, position: int) -> bytes:
        if not 0 <= position < 2**63 or count < 0:
            raise OSError(errno.EINVAL, "invalid argument")
        return self.files[fd][position : position + count]

    def preadv(self, fd: int, buffers: Any, position: int, flags: int = 0, /) -> int:
        got = 0
        for buffer in buffers:
            part = self.files[fd][position + got : position + got + len(buffer)]
            buffer[: len(part)] = part
            got += len(part)
        return got
