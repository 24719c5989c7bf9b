"""Losses that no controller was told of are not forgotten, whatever becomes of the note that tells of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.log.lives import IDENTITY, kill, open_directory, open_log

from replog.log.checkpoint import seal
from replog.testing.disk import MemoryFs, keep_all
from replog.testing.log_contract import append


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
    assert (directory.loss.kind, directory.loss.broker_epoch, directory.loss.lossy) == ("none", 5, ())


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_directory_without_logs_has_lost_none(damage: str) -> None:
    fs = MemoryFs()
    open_directory(fs).close(clean=True)
    DAMAGE[damage](fs)
    assert open_directory(fs).loss.kind == "none"
