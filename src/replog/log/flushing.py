"""A flush as something to be run elsewhere: it holds the files it needs, so that nobody closes them meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from replog.log.segment import Segment
from replog.log.storage import Storage
from replog.ports import NO_DESCRIPTORS

__all__ = ["FlushRun"]


class FlushRun:
    """fsync of some segments, then of the folders that got new names. May run in another thread; everything else here may not."""

    __slots__ = ("_files", "_is_closed", "_refused", "_segments", "_syncs", "folders", "names")

    def __init__(
        self, storage: Storage, segments: Sequence[Segment], folders: Sequence[str], names: int, is_closed: Callable[[], bool]
    ) -> None:
        """Pins the segments; `is_closed` tells whether the log has been put away since. Raises OSError if one cannot be opened; not for
        want of descriptors, which passes: then the flush comes to nothing, and says so when it is run."""
        self._files = files = storage.files
        self._syncs = storage.syncs
        self._is_closed = is_closed
        self._segments: list[Segment] = []
        self.folders = folders
        self.names = names
        """How many names the log had made by now; all of them are durable when this has run."""
        self._refused: OSError | None = None
        try:
            for segment in segments:
                files.pin(segment)
                self._segments.append(segment)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            self._refused = error
            self.release()

    def __call__(self) -> None:
        """Blocks. Raises OSError if it fails: an error that was returned could get lost to a signal on the way."""
        if self._refused is not None:
            raise self._refused
        try:
            for segment in self._segments:
                self._syncs.file(segment.fd)
            for folder in self.folders:
                self._syncs.folder(folder)
        except FileNotFoundError:
            if not self._is_closed():  # in quarantine its folder has another name, and nobody needs it any more
                raise

    def release(self) -> None:
        """Unpin the segments. Idempotent; a flush that is dropped releases itself."""
        segments, self._segments = self._segments, []
        for segment in segments:
            self._files.unpin(segment)

    def __del__(self) -> None:
        if hasattr(self, "_segments"):  # an interrupt may come before the first line of __init__
            self.release()
