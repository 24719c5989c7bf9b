"""Small files: the old content or the new, never a mixture."""

from __future__ import annotations

import pytest

from replog.log.checkpoint import read_plain, read_small_file, seal, unseal, write_plain, write_small_file
from replog.testing.disk import CrashedError, FaultyFs, MemoryFs, keep_all, keep_none, some


def test_what_was_written_is_read() -> None:
    fs = MemoryFs()
    assert read_small_file(fs, "/x") is None
    write_plain(fs, "", "x", {"a": [1, b"\x00", "text"]})
    assert read_plain(fs, "/x") == {"a": [1, b"\x00", "text"]}
    write_plain(fs, "", "x", 7)
    assert read_plain(fs, "/x") == 7


def test_every_damage_is_noticed() -> None:
    data = seal(b"some payload")
    assert unseal(data) == b"some payload"
    for size in range(len(data)):
        assert unseal(data[:size]) is None
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert unseal(bytes(damaged)) is None
    assert unseal(data + b"\0") is None


@pytest.mark.parametrize("left_behind", [b"", b"longer than anything that is written afterwards"])
def test_a_crash_leaves_the_old_content_or_the_new(left_behind: bytes) -> None:
    done = 0
    for crash_after in range(20):
        for choose in [keep_all, keep_none, *map(some, range(10))]:
            fs = MemoryFs()
            write_small_file(fs, "", "x", b"old")
            fs.fsync_dir("")
            if left_behind:
                fd = fs.open("/x.new", create=True)
                fs.pwritev(fd, [left_behind], 0)
                fs.close(fd)
            faulty = FaultyFs(fs, crash_after=crash_after)
            finished = True
            try:
                write_small_file(faulty, "", "x", b"the new content")
            except CrashedError:
                finished = False
            fs.cut_power(choose)
            found = read_small_file(fs, "/x")
            assert found in ((b"the new content",) if finished else (b"old", b"the new content"))
            done += finished
    assert done > 100
