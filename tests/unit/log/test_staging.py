"""What is put aside in files: every fault of the disk is told, nothing is left behind, and what was put aside before is still read."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from tests.unit.log.lives import kill, open_directory

from replog.errors import LogCorrupt, LogDamaged, LogFull
from replog.log.directory import FileLogDirectory
from replog.log.staging import FileStaging
from replog.testing.disk import MemoryFs, SimulatedDisk


def staged(fs: MemoryFs) -> dict[str, int]:
    """Files of stages, and their sizes."""
    return {path.rpartition("/")[2]: len(fs.content("/" + path)) for path in fs.paths("d/staged")}


def disk_with(*bodies: bytes) -> tuple[SimulatedDisk, FileLogDirectory, FileStaging]:
    """A directory that has these pieces in stage 1."""
    disk = SimulatedDisk(random.Random(1))
    directory = open_directory(disk)
    for body in bodies:
        directory.staging.put(1, body)
    return disk, directory, directory.staging


def test_there_is_no_folder_before_something_is_put_aside() -> None:
    disk, directory, staging = disk_with()
    assert disk.size("/d/staged") is None
    staging.put(4, b"abc")
    assert staged(disk) == {"4": 3}
    directory.close(clean=True)


def test_a_stage_is_one_file_and_goes_with_it() -> None:
    disk, _, staging = disk_with(b"abc", b"", b"defgh")
    staging.put(2, b"x")
    assert staged(disk) == {"1": 8, "2": 1}
    assert [staging.read(1, n) for n in range(3)] == [b"abc", b"", b"defgh"]
    staging.drop(1)
    assert staged(disk) == {"2": 1}


@pytest.mark.parametrize("how", ["clean", "process", "power"])
def test_the_next_life_removes_all_of_it(how: str) -> None:
    disk, directory, staging = disk_with(b"abc")
    for stage in range(2, 40):
        staging.put(stage, b"abc")
    if how == "clean":
        directory.close(clean=True)
    kill(disk, directory)
    if how == "power":
        disk.cut_power()
    open_directory(disk).close(clean=True)
    assert staged(disk) == {}


def test_what_the_next_life_cannot_remove_is_in_nobodys_way() -> None:
    disk, directory, staging = disk_with(b"a longer one of an earlier life")
    kill(disk, directory)
    disk.arm("write_error", paths="staged/")
    staging = open_directory(disk).staging
    disk.disarm()
    assert staged(disk) == {"1": 31}
    assert staging.put(1, b"new") == 0
    assert staging.read(1, 0) == b"new"
    assert staged(disk) == {"1": 3}


@pytest.mark.parametrize(
    ("arm", "error"),
    [
        (lambda disk: disk.arm("no_space", paths="staged/"), LogFull),
        (lambda disk: disk.arm("no_space", paths="staged/", space=5), LogFull),
        (lambda disk: disk.arm("write_error", paths="staged/"), LogDamaged),
        (lambda disk: disk.arm("read_only", paths="staged/"), LogDamaged),
    ],
)
@pytest.mark.parametrize("before", [(), (b"abc",), (b"abc", b"de")])
def test_a_piece_that_cannot_be_written_is_not_there(
    arm: Callable[[SimulatedDisk], None], error: type[Exception], before: tuple[bytes, ...]
) -> None:
    disk, _, staging = disk_with(*before)
    arm(disk)
    for _ in range(2):
        with pytest.raises(error, match=r"/d/staged/1: "):
            staging.put(1, b"0123456789")
    disk.disarm()
    with pytest.raises(LogCorrupt):
        staging.read(1, len(before))
    assert [staging.read(1, n) for n in range(len(before))] == list(before)
    assert staging.put(1, b"xyz") == len(before)
    assert [staging.read(1, n) for n in range(len(before) + 1)] == [*before, b"xyz"]
    staging.drop(1)
    assert staged(disk) == {}


def test_a_first_piece_that_does_not_fit_leaves_no_file() -> None:
    """Nobody drops a stage that has no piece, and the space is wanted now."""
    disk, _, staging = disk_with()
    disk.arm("no_space", paths="staged/", space=7)
    with pytest.raises(LogFull):
        staging.put(1, b"0123456789")
    assert disk.injected["short_write"] == 1
    assert staged(disk) == {}


def test_short_writes_are_gone_on_with() -> None:
    disk, _, staging = disk_with()
    disk.arm("short_write", paths="staged/", times=3)
    staging.put(1, bytes(range(256)))
    assert staging.read(1, 0) == bytes(range(256))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda disk: disk.arm("read_error", paths="staged/"), "error"),
        (lambda disk: disk.unlink("/d/staged/1"), "no such file"),
        (lambda disk: disk.content("/d/staged/1").__delitem__(slice(5, None)), "2 of 5 bytes at 3"),
        (lambda disk: disk.content("/d/staged/1").clear(), "0 of 5 bytes at 3"),
    ],
    ids=["EIO", "gone", "cut", "empty"],
)
def test_a_piece_that_cannot_be_read_says_why(spoil: Callable[[SimulatedDisk], None], says: str) -> None:
    disk, _, staging = disk_with(b"abc", b"defgh")
    spoil(disk)
    with pytest.raises(LogCorrupt, match=f"/d/staged/1: .*{says}"):
        staging.read(1, 1)
    staging.drop(1)
    assert staging.put(1, b"x") == 0


def test_ten_thousand_stages_hold_no_descriptor() -> None:
    disk, directory, staging = disk_with()
    held = len(disk._open)
    for stage in range(10_000):
        staging.put(stage, b"%d" % stage)
    assert len(disk._open) == held
    assert [staging.read(stage, 0) for stage in (0, 9_999)] == [b"0", b"9999"]
    for stage in range(10_000):
        staging.drop(stage)
    assert staged(disk) == {}
    directory.close(clean=True)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_stage_that_cannot_be_opened_for_now_is_whole(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, _, staging = disk_with(b"abc")

    def none_left(path: str, *, create: bool = False) -> int:
        raise OSError(code, "injected", path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "open", none_left)
        with pytest.raises(LogFull, match=r"/d/staged/1: .*injected"):
            staging.read(1, 0)
        with pytest.raises(LogFull, match=r"/d/staged/1: .*injected"):
            staging.put(1, b"de")
    assert staging.put(1, b"fg") == 1
    assert [staging.read(1, n) for n in range(2)] == [b"abc", b"fg"]


def test_what_it_leaves_on_a_full_disk_keeps_no_broker_from_starting() -> None:
    """Removing it makes the room that the start needs."""

    class Full(MemoryFs):
        def open(self, path: str, *, create: bool = False) -> int:
            if create and self.paths("/d/staged") and self.size(path) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().open(path, create=create)

    fs = Full()
    directory = open_directory(fs)
    directory.staging.put(1, b"abc")
    directory.close(clean=False)
    open_directory(fs).close(clean=True)
    assert fs.paths("/d/staged") == []
