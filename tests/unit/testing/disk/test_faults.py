"""Faults that are armed: each happens as ordered, and is counted."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable

import pytest

from replog.testing.disk import Atlas, SimulatedDisk, keep_all, keep_none
from replog.testing.disk.faults import FaultKind


def opened(*paths: str) -> tuple[SimulatedDisk, list[int]]:
    """A disk with these files, 100 bytes each, durable."""
    disk = SimulatedDisk(random.Random(3))
    fds = []
    for path in paths or ("/f.log",):
        fd = disk.open(path, create=True)
        disk.pwritev(fd, [bytes(range(100))], 0)
        disk.fsync(fd)
        fds.append(fd)
    disk.fsync_dir("/")
    return disk, fds


CALLS: dict[str, Callable[[SimulatedDisk, int], object]] = {
    "read": lambda disk, fd: disk.pread(fd, 1, 0),
    "readv": lambda disk, fd: disk.preadv(fd, [memoryview(bytearray(1))], 0),
    "write": lambda disk, fd: disk.pwritev(fd, [b"new"], 0),
    "fsync": lambda disk, fd: disk.fsync(fd),
    "fsync_dir": lambda disk, fd: disk.fsync_dir("/"),
    "truncate": lambda disk, fd: disk.ftruncate(fd, 50),
    "create": lambda disk, fd: disk.open("/new", create=True),
    "mkdir": lambda disk, fd: disk.mkdir("/folder"),
    "rename": lambda disk, fd: disk.rename("/f.log", "/g.log"),
    "unlink": lambda disk, fd: disk.unlink("/f.log"),
}

ERRORS: list[tuple[FaultKind, int, set[str]]] = [
    ("read_error", errno.EIO, {"read", "readv"}),
    ("write_error", errno.EIO, {"write", "truncate", "create", "mkdir", "rename", "unlink"}),
    ("fsync_error", errno.EIO, {"fsync", "fsync_dir"}),
    ("no_space", errno.ENOSPC, {"write", "create", "mkdir"}),
    ("read_only", errno.EROFS, {"write", "truncate", "create", "mkdir", "rename", "unlink"}),
]


@pytest.mark.parametrize(("kind", "code", "fail"), ERRORS, ids=[kind for kind, _, _ in ERRORS])
@pytest.mark.parametrize("call", CALLS)
def test_errors_while_they_are_armed(kind: FaultKind, code: int, fail: set[str], call: str) -> None:
    disk, (fd,) = opened()
    disk.arm(kind)
    assert disk.armed == (kind,)
    if call in fail:
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            CALLS[call](disk, fd)
        assert caught.value.errno == code
        assert disk.injected == {kind: 1}
        assert disk.snapshot() == {"f.log": bytes(range(100))}, "nothing has changed"
    disk.disarm(kind)
    CALLS[call](disk, fd)
    assert disk.injected == ({kind: 1} if call in fail else {})


def test_the_nth_call_of_one_file() -> None:
    disk, (one, other) = opened("/one.log", "/other.log")
    disk.arm("write_error", paths="one", after=2, times=1)
    results = []
    for _ in range(5):
        disk.pwritev(other, [b"x"], 0)
        try:
            disk.pwritev(one, [b"x"], 0)
            results.append("written")
        except OSError:
            results.append("failed")
    assert results == ["written", "written", "failed", "written", "written"]


def test_files_by_a_function_and_by_chance() -> None:
    disk, (one, other) = opened("/one.log", "/other.log")
    disk.arm("fsync_error", paths=lambda path: path.endswith("other.log"), probability=0.5)
    disk.fsync(one)
    failures = 0
    for _ in range(200):
        try:
            disk.fsync(other)
        except OSError:
            failures += 1
    assert 60 < failures < 140
    assert disk.injected == {"fsync_error": failures}


def test_a_full_disk_takes_a_part_first() -> None:
    disk, (fd,) = opened()
    disk.arm("no_space", space=30)
    assert disk.pwritev(fd, [bytes(20)], 100) == 20
    assert disk.pwritev(fd, [bytes(20)], 120) == 10
    with pytest.raises(OSError, match="space"):
        disk.pwritev(fd, [bytes(1)], 130)
    disk.disarm()
    assert disk.pwritev(fd, [bytes(20)], 130) == 20
    assert disk.injected == {"short_write": 1, "no_space": 1}


def test_a_short_write() -> None:
    disk, (fd,) = opened()
    disk.arm("short_write", times=1)
    taken = disk.pwritev(fd, [bytes(50)], 100)
    assert 0 < taken < 50
    assert disk.size("/f.log") == 100 + taken
    assert disk.pwritev(fd, [bytes(50)], 100) == 50


def test_a_failed_fsync_is_final_for_what_it_concerned() -> None:
    disk, (fd,) = opened()
    disk.pwritev(fd, [b"gone"], 0)
    disk.arm("fsync_error", times=1)
    with pytest.raises(OSError, match="rror"):
        disk.fsync(fd)
    disk.fsync(fd)
    assert disk.pread(fd, 4, 0) == b"gone"
    disk.cut_power(keep_all)
    assert disk.snapshot() == {"f.log": bytes(range(100))}


def test_a_lying_fsync() -> None:
    disk, (fd,) = opened()
    disk.arm("lying_fsync")
    disk.pwritev(fd, [b"new"], 0)
    disk.fsync(fd)
    disk.rename("/f.log", "/g.log")
    disk.fsync_dir("/")
    assert disk.injected == {"lying_fsync": 2}
    disk.cut_power(keep_none)
    assert disk.snapshot() == {"f.log": bytes(range(100))}


def test_a_stale_write_changes_nothing() -> None:
    disk, (fd,) = opened()
    disk.arm("stale_write", times=1)
    assert disk.pwritev(fd, [b"new"], 0) == 3
    assert disk.snapshot() == {"f.log": bytes(range(100))}
    assert disk.injected == {"stale_write": 1}


def test_a_misdirected_write_lands_elsewhere() -> None:
    files = set()
    for seed in range(20):
        disk, (fd, _) = opened("/f.log", "/g.log")
        disk.chance.seed(seed)
        disk.arm("misdirected_write", times=1)
        assert disk.pwritev(fd, [b"\xff" * 10], 100) == 10
        assert disk.injected == {"misdirected_write": 1}
        changed = [path for path, data in disk.snapshot().items() if data != bytes(range(100))]
        assert len(changed) == 1
        assert disk.snapshot()["f.log"][100:] != b"\xff" * 10
        files.update(changed)
    assert files == {"f.log", "g.log"}


def test_bits_turn_over_where_they_may() -> None:
    disk, _ = opened("/00.log", "/01.log", "/catalogue")
    before = disk.snapshot()
    places = set()
    for _ in range(60):
        damage = disk.flip(".log", whole=True, region=(0.5, 0.6))
        assert damage is not None
        assert damage.path == "00.log"
        places.add(damage.position)
        data = bytearray(disk.snapshot()[damage.path])
        assert data[damage.position] ^ 1 << damage.bit == before[damage.path][damage.position]
        before = disk.snapshot()
    assert places == set(range(50, 60))
    damage = disk.flip(whole=False)
    assert damage is not None
    assert damage.path == "01.log"
    assert disk.flip("nothing is called so") is None
    assert disk.injected == {"bit_flip": 61}
    left = disk.snapshot()
    disk.cut_power(keep_none)
    assert disk.snapshot() == left, "damage is on the disk, not in the cache"


def test_the_same_chance_does_the_same() -> None:
    def run() -> tuple[dict[str, bytes], dict[str, int]]:
        disk, fds = opened("/a.log", "/b.log")
        disk.arm("short_write", probability=0.3)
        disk.arm("misdirected_write", probability=0.3)
        for number in range(50):
            disk.pwritev(fds[number % 2], [bytes([number]) * 600], 37 * number)
            disk.flip()
        disk.cut_power()
        return disk.snapshot(), disk.injected

    assert run() == run()
    assert run()[1].keys() == {"bit_flip", "misdirected_write", "power_cut", "short_write"}


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(AssertionError, match="none of"):
        SimulatedDisk(random.Random(1)).arm("gremlin")  # type: ignore[arg-type]


def test_the_atlas_keeps_a_good_copy() -> None:
    atlas = Atlas()
    holders = (1, 2, 3)
    assert atlas.may_damage(1, ["p", "q"], holders)
    atlas.damage(1, ["p", "q"])
    assert atlas.may_damage(2, ["p"], holders)
    atlas.damage(2, ["p"])
    assert not atlas.may_damage(3, ["p"], holders), "it is the last"
    assert not atlas.may_damage(3, ["q", "p"], holders), "the last of one of them"
    assert atlas.may_damage(3, ["q"], holders)
    assert atlas.may_damage(1, ["p"], holders), "what is bad may get worse"
    assert atlas.may_damage(3, ["p"], (1, 2)), "nobody depends on a copy that does not hold everything"
    atlas.repaired(1, ["p"])
    assert not atlas.is_damaged(1, "p")
    assert atlas.is_damaged(1, "q")
    assert atlas.may_damage(3, ["p"], holders)
    assert not atlas.may_damage(3, ["p"], (3, 2)), "1 is good and not whole"


def test_the_atlas_can_keep_more() -> None:
    atlas = Atlas(spare=2)
    assert atlas.may_damage(1, ["p"], (1, 2, 3))
    atlas.damage(1, ["p"])
    assert not atlas.may_damage(2, ["p"], (1, 2, 3))
    assert not atlas.may_damage(2, ["p"], (2,))
