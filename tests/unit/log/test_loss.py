"""Losses that no controller was told of are not forgotten, whatever becomes of the note that tells of them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.unit.log.lives import IDENTITY, kill, open_directory, open_log, segments

from replog.config import TopicConfig
from replog.log.checkpoint import seal
from replog.ports import LossKind
from replog.testing.disk import CrashedError, FaultyFs, MemoryFs, keep_all, keep_none
from replog.testing.log_contract import append, flush


def flipped(fs: MemoryFs) -> None:
    fs.content("/d/life")[-1] ^= 1


DAMAGE: dict[str, Callable[[MemoryFs], object]] = {
    "none": lambda fs: None,
    "a bit": flipped,
    "gone": lambda fs: fs.unlink("/d/life"),
    "nothing in it": lambda fs: fs.content("/d/life").__setitem__(slice(None), seal(b"")),
    "another file": lambda fs: fs.content("/d/life").__setitem__(slice(None), fs.content("/d/checkpoint")),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("lives", [0, 1], ids=["the next life", "the one after it"])
def test_a_loss_that_was_not_reported_outlives_a_clean_stop(damage: str, lives: int) -> None:
    fs = MemoryFs()
    _, log = open_log(fs)
    append(log)
    fs.cut_power(keep_all)  # flush="os": what the disk has of it is not known
    for _ in range(lives):
        kill(fs, open_directory(fs))
    directory = open_directory(fs)
    assert (directory.loss.kind, directory.loss.lossy) == ("power", (IDENTITY,))
    directory.close(clean=True)
    DAMAGE[damage](fs)
    directory = open_directory(fs)
    assert (directory.loss.kind, directory.loss.lossy) == ("power" if damage == "none" else "corrupt", (IDENTITY,))
    kill(fs, directory)
    directory = open_directory(fs)
    assert directory.loss.lossy == (IDENTITY,)
    directory.registered(5)
    directory.close(clean=True)
    directory = open_directory(fs)
    assert (directory.loss.kind, directory.loss.lossy) == ("none", ())


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_directory_without_logs_has_lost_none(damage: str) -> None:
    fs = MemoryFs()
    open_directory(fs).close(clean=True)
    DAMAGE[damage](fs)
    assert open_directory(fs).loss.kind == "none"


def with_a_bad_batch(flush_policy: str, *, power: bool) -> MemoryFs:
    """A directory that was killed, or has lost power, with one bit turned over where batches follow that were flushed."""
    fs = MemoryFs()
    directory, log = open_log(fs, TopicConfig(flush=flush_policy, segment_bytes=600))
    directory.registered(1)
    for _ in range(6):
        length = append(log, 2).length
        flush(log)
    kill(fs, directory)
    fs.content(segments(fs)[1])[length - 1] ^= 1
    if power:
        fs.cut_power()
    return fs


@pytest.mark.parametrize(("flush_policy", "power", "kind"), [("os", False, "corrupt"), ("ack", False, "corrupt"), ("ack", True, "power")])
@pytest.mark.parametrize("cut_again", [False, True], ids=["killed", "power cut"])
def test_a_loss_that_an_opening_found_outlives_it_wherever_it_ends(flush_policy: str, power: bool, kind: LossKind, cut_again: bool) -> None:
    """It cuts what does not fit: the next opening finds a log that simply ends there."""
    crash_after = finished = 0
    while not finished:
        fs = with_a_bad_batch(flush_policy, power=power)
        with suppress(CrashedError):
            open_directory(FaultyFs(fs, crash_after=crash_after))
            finished = 1
        fs.kill()
        if cut_again:
            fs.cut_power(keep_none)
        directory = open_directory(fs)
        assert directory.loss.lossy == (IDENTITY,), crash_after
        assert len(directory.loss.lives) >= 1, "the one that was let in, whichever openings were not finished"
        assert directory.loss.kind == kind or (cut_again and directory.loss.kind == "power")
        crash_after += 1
    assert crash_after > 10


def test_nothing_is_cut_while_there_is_no_room_to_note_the_loss() -> None:
    fs = with_a_bad_batch("ack", power=False)

    def full(operation: str, path: str) -> None:
        if operation in ("create", "write") and "/life" in path:
            raise OSError(errno.ENOSPC, "injected", path)

    before = {path: bytes(fs.content(path)) for path in segments(fs)}
    with pytest.raises(OSError, match="injected"):
        open_directory(FaultyFs(fs, full))
    assert {path: bytes(fs.content(path)) for path in segments(fs)} == before
    fs.kill()
    directory = open_directory(fs)
    assert (directory.loss.kind, directory.loss.lossy, directory.recovered[IDENTITY].bytes_cut > 0) == ("corrupt", (IDENTITY,), True)


def test_losses_that_are_known_anyway_are_not_noted_one_by_one() -> None:
    """After a power cut every log is lossy that is not flushed before each answer: thousands of them are one write."""
    layer = FaultyFs(with_a_bad_batch("os", power=True))
    assert open_directory(layer).loss.lossy == (IDENTITY,)
    assert layer.operations.count(("write", "/d/life.new")) == 1
