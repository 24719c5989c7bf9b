"""That an fsync has failed is known from that moment on, whatever is raised in its place."""

from __future__ import annotations

import ast
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from replog.log import syncing
from replog.log.syncing import Syncs
from replog.testing.disk import MemoryFs


class Disk(MemoryFs):
    """Whose fsyncs raise."""

    raises: tuple[BaseException, ...]
    """Each while the one before it is handled."""

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self._raise(*self.raises)

    def fsync_dir(self, path: str) -> None:
        self._raise(*self.raises)

    def _raise(self, first: BaseException, *others: BaseException) -> None:
        try:
            raise first
        finally:
            if others:
                self._raise(*others)


def error(number: int) -> OSError:
    return OSError(number, "of the disk", "/d/logs")


def asked(kind: str) -> tuple[Disk, Syncs, Callable[[], None]]:
    disk = Disk()
    syncs = Syncs(disk)
    return disk, syncs, (lambda: syncs.file(3)) if kind == "file" else (lambda: syncs.folder("/d/logs"))


@pytest.mark.parametrize(
    ("kind", "raised", "failure"),
    [
        ("file", (error(errno.EIO),), errno.EIO),
        ("file", (error(errno.EMFILE),), errno.EMFILE),
        ("file", (OSError("the block store does not answer"),), errno.EIO),
        ("file", (KeyboardInterrupt(),), 0),
        ("folder", (error(errno.EIO),), errno.EIO),
        ("folder", (error(errno.ENOSPC),), errno.ENOSPC),
        ("folder", (error(errno.EMFILE),), 0),  # it could not be opened
        ("folder", (error(errno.ENOENT),), 0),
        ("folder", (OSError("the block store does not answer"),), errno.EIO),
        ("folder", (KeyboardInterrupt(),), 0),
        ("folder", (error(errno.EIO), KeyboardInterrupt()), errno.EIO),
        ("folder", (error(errno.EROFS), TimeoutError("too slow")), errno.EROFS),
        ("folder", (error(errno.EIO), error(errno.ENOENT)), errno.EIO),
        ("folder", (error(errno.EIO), KeyError("of a handler"), SystemExit(1)), errno.EIO),
    ],
)
def test_what_counts_as_a_failure(kind: str, raised: tuple[BaseException, ...], failure: int) -> None:
    disk, syncs, ask = asked(kind)
    disk.raises = raised
    with pytest.raises(type(raised[-1])):
        ask()
    assert syncs.failure == failure
    assert syncs.reason == (f"a flush failed: {errno.errorcode[failure]}" if failure else "")


def test_it_stays_known_whatever_comes_later() -> None:
    disk, syncs, ask = asked("folder")
    for raised in (error(errno.EIO), error(errno.ENOENT), KeyboardInterrupt()):
        disk.raises = (raised,)
        with pytest.raises(type(raised)):
            ask()
    assert syncs.failure == errno.EIO


def test_an_error_that_is_being_handled_by_others_is_not_that_of_the_fsync() -> None:
    disk, syncs, ask = asked("folder")
    disk.raises = (KeyboardInterrupt(),)
    try:
        raise error(errno.EIO)
    except OSError:
        with pytest.raises(KeyboardInterrupt):
            ask()
    assert syncs.failure == 0


ELSEWHERE = {
    "catalogue.py": "entries are cut back, and the file written anew has another name",
    "checkpoint.py": "a small file is written whole under another name",
    "directory.py": "of the folder itself, while it is made, or a note goes",
    "files.py": "the functions themselves",
    "recovery.py": "a segment that is cut is written anew under another name, or its folder is",
    "rewriting.py": "after a failure, which is noted until the end of it",
}
"""Files with fsyncs of their own, and why nothing counts as flushed by them."""


def test_every_other_fsync_of_a_log_goes_the_way_on_which_none_is_lost() -> None:
    found = set()
    for file in Path(syncing.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("fsync", "fsync_dir"):
                found.add(file.name)
    assert found - {"syncing.py"} == set(ELSEWHERE)
