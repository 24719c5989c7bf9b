"""Who holds the lock of a folder, and that it is let go whatever happens to its holder."""

from __future__ import annotations

from replog.log.files import OS, Fs

__all__ = ["FolderLock"]


class FolderLock:
    """The lock file at `path`, opened and locked (flock) by `take`, until `release`, or until nobody has this object any more.

    The latter is for interrupts: between a call and the statement that keeps its result there is nobody who could let go.
    """

    __slots__ = ("_fd", "_fs")

    def __init__(self, fs: Fs) -> None:
        """Nothing is open yet."""
        self._fs = fs  # before the other: `__del__` looks for that one first
        self._fd = -1

    def take(self, path: str) -> bool:
        """Take it, or return False at once: somebody has it. Raises OSError, and UsageError where the path is a link."""
        self._fd = self._fs.open(path, create=True)
        try:
            taken = self._fs.lock(self._fd)
        except BaseException:
            self.release()
            raise
        if not taken:
            self.release()
        return taken

    @property
    def is_held(self) -> bool:
        """Whether it was taken, and not let go."""
        return self._fd >= 0

    def release(self) -> None:
        """Let go. Idempotent, and to be repeated after an interrupt."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._fs.close(fd)  # no interrupt comes in between: the interpreter looks for signals after calls and jumps

    def __del__(self) -> None:
        # What a simulated disk has open ends with its crash; an interrupt may have come before there was anything.
        if getattr(self, "_fd", -1) >= 0 and self._fs is OS:
            self.release()
