"""After a failed fsync: the system calls pages clean that never reached the disk, and no later fsync writes them.

Whoever reads them gets what was written, as long as they stay in the cache. Written once more, they are new pages.
"""

from __future__ import annotations

from typing import Final

from replog.log.checkpoint import write_all
from replog.log.files import Fs
from replog.log.scan import steps
from replog.records import BadBatch

__all__ = ["write_again"]

_PIECE: Final = 1 << 20


def write_again(fs: Fs, path: str, base: int, recovery_point: int) -> None:
    """Write what a segment holds at and above `recovery_point` over itself, and sync it; `base` is its first offset.

    Whatever a crash leaves of that is what a power cut could leave anyway. It comes before verifying: pages that were
    dropped from the cache meanwhile show what the disk has, and that is then found out. Raises OSError.
    """
    fd = fs.open(path)
    try:
        size = fs.size(path) or 0
        position = _position_of(fs, fd, size, base, recovery_point)
        while piece := fs.pread(fd, _PIECE, position):
            write_all(fs, fd, piece, position)
            position += len(piece)
        # The length is a change as well that may have been lost: said again, nothing that was cut is left behind it.
        fs.ftruncate(fd, size + 1)
        fs.ftruncate(fd, size)
        fs.fsync(fd)
    finally:
        fs.close(fd)


def _position_of(fs: Fs, fd: int, size: int, base: int, recovery_point: int) -> int:
    """Where the first batch that may not have been flushed begins; where the chain of batches breaks, if it does before."""
    position = 0
    try:
        for at, _, end, length in steps(fs, fd, 0, size, base):
            if end > recovery_point:
                break
            position = at + length
    except BadBatch:
        pass
    return position
