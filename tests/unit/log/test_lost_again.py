"""What is lost of a log that had lost something before, of which the directory has not heard yet that it was dealt with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from attrs import evolve
from tests.unit.log.lives import IDENTITY, kill, open_directory, segments
from tests.unit.log.test_repair import OTHER, disk_with, flip, prepared, repaired

import replog.log.directory as directory_module
from replog.controller.changes import Admitted, Broker
from replog.log.alone import open_alone
from replog.log.checkpoint import write_plain
from replog.log.directory import FileLogDirectory
from replog.model import BrokerInfo, PartitionId
from replog.testing.disk import MemoryFs
from replog.testing.log_contract import append, flush


def lost(directory: FileLogDirectory, let_in: str) -> bool:
    """What a controller makes of it that has let this life in last."""
    broker = Broker(BrokerInfo(1, 9, directory_id=directory.directory_id, fenced=True), directory.loss, directory.incarnation)
    return broker.has_lost(Admitted(5, let_in, directory.directory_id, 1), is_named=IDENTITY in broker.lossy)


def let_in_unheard(lossy: PartitionId) -> tuple[MemoryFs, str, Callable[[], None]]:
    """A directory whose broker has reported that loss, was let in, has written more, and was killed before it heard; and what damages
    a batch that was never flushed, with an intact one behind it."""
    disk = disk_with(prepared(False, 0)[0])
    directory = open_directory(disk)
    log = directory.get(IDENTITY)
    assert log is not None
    append(log, ["a"], epoch=9)
    flush(log)
    directory.checkpoint()
    sizes = {file: len(disk.content(file)) for file in segments(disk)}
    append(log, ["b"], epoch=9)
    file = segments(disk)[-1]
    append(log, ["c"], epoch=9)
    life = evolve(directory._life, kind="power", lossy=(lossy,), since=directory.incarnation)
    kill(disk, directory)
    write_plain(disk, "/d", "life", life.to_plain())
    return disk, directory.incarnation, partial(flip, disk, file, sizes.get(file, 0) + 70)


@pytest.mark.parametrize("before", [IDENTITY, OTHER])
@pytest.mark.parametrize("by", ["repair", "start"])
def test_damage_after_it_was_let_in_is_another_loss(by: str, before: PartitionId) -> None:
    disk, let_in, damage = let_in_unheard(before)
    damage()
    if by == "repair":
        assert repaired(disk).lossy == tuple(sorted({IDENTITY, before}))
    directory = open_directory(disk)
    assert IDENTITY in directory.loss.lossy
    assert lost(directory, let_in)


@pytest.mark.parametrize("before", [IDENTITY, OTHER])
def test_damage_that_an_unfinished_start_has_cut_is_another_loss(before: PartitionId, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, let_in, damage = let_in_unheard(before)
    damage()
    with monkeypatch.context() as patch:
        patch.setattr(directory_module, "judge", _ends)
        with pytest.raises(MemoryError):
            open_directory(disk)
    disk.kill()
    directory = open_directory(disk)
    assert IDENTITY in directory.loss.lossy
    assert lost(directory, let_in)


def _ends(*_: object, **__: object) -> None:
    raise MemoryError


def test_without_damage_what_was_lost_before_is_over() -> None:
    disk, let_in, _ = let_in_unheard(IDENTITY)
    directory = open_directory(disk)
    assert directory.loss.lossy == (IDENTITY,)
    assert not lost(directory, let_in)


def test_the_caller_of_a_log_on_its_own_is_told_of_a_loss_once() -> None:
    disk = MemoryFs()
    log, _ = open_alone("/d", None, disk, None)
    append(log, ["a"])
    told = []
    for end in (disk.cut_power, disk.kill, disk.kill):
        end()
        log, _ = open_alone("/d", None, disk, None)
        told.append(len(log.loss.lossy))
    assert told == [1, 0, 0]
