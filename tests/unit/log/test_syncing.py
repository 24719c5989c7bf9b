"""That an fsync has failed is known from that moment on; what comes before one, or out of a signal handler, is no such news."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from replog.log.syncing import Syncs
from replog.testing.disk import MemoryFs


class Disk(MemoryFs):
    """Whose fsyncs raise."""

    raises: BaseException

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        raise self.raises

    def fsync_dir(self, path: str) -> None:
        raise self.raises


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/d/logs")


def asked(kind: str) -> tuple[Disk, Syncs, Callable[[], None]]:
    disk = Disk()
    syncs = Syncs(disk)
    return disk, syncs, (lambda: syncs.file(3)) if kind == "file" else (lambda: syncs.folder("/d/logs"))


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize(
    ("raised", "failure"),
    [
        (error(errno.EIO), errno.EIO),
        (error(errno.ENOSPC), errno.ENOSPC),
        (error(errno.EMFILE), 0),  # it could not be opened for one
        (error(errno.ENOENT), 0),
        (TimeoutError("a limit of the application's own"), 0),
        (KeyboardInterrupt(), 0),
    ],
)
def test_what_counts_as_a_failure(kind: str, raised: BaseException, failure: int) -> None:
    disk, syncs, ask = asked(kind)
    disk.raises = raised
    with pytest.raises(type(raised)):
        ask()
    assert syncs.failure == failure
    assert syncs.reason == (f"a flush failed: [Errno {failure}] {os.strerror(failure)}" if failure else "")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_it_stays_known_whatever_comes_later(kind: str) -> None:
    disk, syncs, ask = asked(kind)
    for raised in (error(errno.EIO), error(errno.ENOENT), TimeoutError("later")):
        disk.raises = raised
        with pytest.raises(OSError, match=r"Input|No such|later"):
            ask()
    assert syncs.failure == errno.EIO


def test_an_error_that_is_being_handled_by_others_is_not_that_of_the_fsync() -> None:
    disk, syncs, ask = asked("folder")
    disk.raises = KeyboardInterrupt()
    try:
        raise error(errno.EIO)
    except OSError:
        with pytest.raises(KeyboardInterrupt):
            ask()
    assert syncs.failure == 0
