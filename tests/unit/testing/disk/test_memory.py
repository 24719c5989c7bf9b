"""The disk in memory: what is durable when, and everything that a power cut can leave."""

from __future__ import annotations

import pytest

from replog.testing.disk import SECTOR, MemoryFs, crash_states, keep_all, keep_none, some

A, B, C = (bytes([letter]) * SECTOR for letter in b"ABC")


def file_of(*synced: bytes) -> tuple[MemoryFs, int]:
    """A disk with one file, f, which holds these bytes durably."""
    disk = MemoryFs()
    fd = disk.open("/f", create=True)
    for part in synced:
        disk.pwritev(fd, [part], disk.size("/f") or 0)
    disk.fsync(fd)
    disk.fsync_dir("/")
    return disk, fd


def outcomes(disk: MemoryFs, path: str = "f") -> set[bytes | None]:
    """What a power cut can make of a file."""
    states = crash_states(disk)
    assert states.exhaustive
    return {state.files.get(path) for state in states}


def test_nothing_is_durable_before_an_fsync() -> None:
    disk, fd = file_of(A)
    disk.pwritev(fd, [B], 0)
    disk.ftruncate(fd, 10)
    assert disk.content("/f") is not None
    disk, fd = file_of(A)
    disk.pwritev(fd, [B], 0)
    disk.kill()
    assert disk.snapshot() == {"f": B}, "killing a process loses nothing"
    disk.cut_power()
    assert disk.snapshot() == {"f": A}


def test_sectors_are_kept_or_not_each_for_itself() -> None:
    disk, fd = file_of(A + A + A)
    disk.pwritev(fd, [B + B], SECTOR // 2)  # three sectors, two of them in part
    half = A[: SECTOR // 2]
    first, last = half + B[: SECTOR // 2], B[: SECTOR // 2] + half
    assert outcomes(disk) == {x + y + z for x in (A, first) for y in (A, B) for z in (A, last)}


def test_a_sector_has_one_of_the_contents_it_had() -> None:
    disk, fd = file_of(A)
    disk.pwritev(fd, [B], 0)
    disk.pwritev(fd, [C[:100]], 0)
    assert outcomes(disk) == {A, B, C[:100] + B[100:]}, "the second write cannot be there without the first, which it lies on"


def test_a_file_can_be_longer_and_filled_with_zeros() -> None:
    disk, fd = file_of()
    disk.pwritev(fd, [A + B], 0)
    zero = bytes(SECTOR)
    assert outcomes(disk) == {b"", zero, A, zero + zero, A + zero, zero + B, A + B}


def test_a_truncation_and_a_write_behind_it_come_in_any_order() -> None:
    disk, fd = file_of(A + B)
    disk.ftruncate(fd, SECTOR)
    disk.pwritev(fd, [C], SECTOR)
    assert outcomes(disk) == {A + B, A + C, A}
    disk.fsync(fd)
    assert outcomes(disk) == {A + C}


def test_a_failed_fsync_drops_what_it_should_have_kept() -> None:
    """The pages are clean afterwards: a second fsync succeeds, and makes only later writes durable."""
    disk, fd = file_of(A)
    disk.pwritev(fd, [B], SECTOR)
    disk.drop_dirty(fd)
    assert disk.pread(fd, SECTOR, SECTOR) == B, "it is still seen"
    disk.pwritev(fd, [C], 2 * SECTOR)
    disk.fsync(fd)
    assert disk.pread(fd, 3 * SECTOR, 0) == A + B + C
    disk.cut_power(keep_all)
    assert disk.snapshot() == {"f": A + bytes(SECTOR) + C}


def test_names_are_durable_with_their_folder_only() -> None:
    disk, _ = file_of(A)
    disk.rename("/f", "/g")
    new = disk.open("/f", create=True)
    disk.pwritev(new, [B], 0)
    disk.fsync(new)
    seen = {tuple(sorted(state.files.items())) for state in crash_states(disk)}
    assert seen == {(("f", A),), (("g", A),), (("f", B),), (("f", B), ("g", A))}
    disk.fsync_dir("/")
    assert [state.files for state in crash_states(disk)] == [{"f": B, "g": A}]


def test_a_name_that_was_moved_away_durably_does_not_come_back() -> None:
    disk = MemoryFs.holding({}, ["here", "there"])
    disk.mkdir("/here/x")
    disk.rename("/here/x", "/there/x")
    disk.fsync_dir("/there")
    assert [state.folders for state in crash_states(disk)] == [("here", "there", "there/x")]


@pytest.mark.parametrize("seed", range(200))
def test_a_power_cut_leaves_one_of_the_states_enumerated(seed: int) -> None:
    """Two ways to the same thing: `cut_power` chooses, `crash_states` lists."""
    disk, fd = file_of(A + B)
    disk.ftruncate(fd, 700)
    disk.pwritev(fd, [C + C], 700)
    disk.rename("/f", "/g")
    disk.unlink("/g")
    states = {state.fingerprint for state in crash_states(disk)}
    assert len(states) > 20
    disk.cut_power(some(seed))
    (left,) = crash_states(disk)
    assert left.fingerprint in states


def test_the_extremes_are_among_them() -> None:
    for choose in (keep_none, keep_all):
        disk, fd = file_of(A)
        disk.pwritev(fd, [B + C], 0)
        states = {state.fingerprint for state in crash_states(disk)}
        disk.cut_power(choose)
        assert disk.snapshot() == {"f": A if choose is keep_none else B + C}
        (left,) = crash_states(disk)
        assert left.fingerprint in states


def test_too_many_states_are_sampled_evenly_and_said_to_be() -> None:
    disk, fd = file_of()
    disk.pwritev(fd, [bytes(range(1, 251)) * 41], 0)  # 21 sectors and as many sizes
    states = crash_states(disk, limit=500)
    assert states.possible == sum(2**shown for shown in range(22))
    assert not states.exhaustive
    found = list(states)
    assert len({state.fingerprint for state in found}) == len(found)
    assert 300 <= len(found) <= 500
    sizes = {len(state.files["f"]) for state in found}
    assert len(sizes) == 22, "every size comes up"
    assert [s.fingerprint for s in crash_states(disk, limit=500)] == [s.fingerprint for s in found], "the same sample each time"


def test_damage_from_outside_is_in_both_images_until_the_next_write() -> None:
    disk, fd = file_of(A)
    disk.content("/f")[0] = 0
    damaged = b"\0" + A[1:]
    assert outcomes(disk) == {damaged}
    disk.pwritev(fd, [B], SECTOR)
    assert damaged in outcomes(disk)
    disk.cut_power()
    assert disk.snapshot() == {"f": damaged}


def test_a_disk_in_a_given_state() -> None:
    disk = MemoryFs.holding({"/a/b/f": A}, ["/c"], boots=7)
    assert disk.paths() == ["a/b/f"]
    assert disk.listdir("/") == ["a", "c"]
    assert disk.boot_id() == "boot 7"
    disk.cut_power()
    assert (disk.snapshot(), disk.boot_id()) == ({"a/b/f": A}, "boot 8")
