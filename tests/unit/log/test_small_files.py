"""Small files that are intact, and not what belongs there: a start never ends in anything but LogCorrupt or UsageError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations
from typing import Any

import msgpack
import pytest
from crc32c import crc32c
from tests.unit.log.lives import FOLDER, IDENTITY, LIMITS, open_directory, open_log, reopened

from replog.config import BrokerConfig
from replog.errors import LogCorrupt, UsageError
from replog.log.checkpoint import read_plain, seal, unpack, unpack_first, unseal
from replog.log.repair.planning import plan_of
from replog.log.shapes import CATALOGUE, CHECKPOINT, CLEAN, LIFE, MARKER, META, OWNER, PRODUCERS, SUMMARY, fits
from replog.log.storage import Marker, place_marker
from replog.testing.disk import MemoryFs
from replog.testing.disk.trial import content_of
from replog.testing.log_samples import append, append_group

INDEX = f"{FOLDER}/{0:020d}.index"
MARK = f"{FOLDER}/marker"
NAMES = ("/d/meta", "/d/life", "/d/checkpoint", "/d/clean", INDEX, MARK, "/d/catalogue")
SHAPES = {"/d/meta": META, "/d/life": LIFE, "/d/checkpoint": CHECKPOINT, "/d/clean": CLEAN, INDEX: SUMMARY, MARK: MARKER}


def written() -> tuple[dict[str, bytes], Any]:
    """Every file of a directory that was stopped cleanly, with a truncation noted, and what its log holds."""
    fs = MemoryFs()
    directory, log = open_log(fs)
    for n in range(3):
        append(log, [f"{n}", "b" * 100], epoch=n, producer=(7, 0, 2 * n))
        append_group(log, 1, 2, version=n + 1, epoch=n)
    held = content_of(log).batches
    directory.close(clean=True)
    place_marker(fs, FOLDER, Marker(-1, log.end_offset))
    return {f"/{path}": bytes(content) for path, content in fs.snapshot().items()}, held


FILES, HELD = written()


def disk_with(name: str, content: bytes, *, clean: bool) -> MemoryFs:
    fs = MemoryFs.holding({**FILES, name: content}, ["/d/quarantine"])
    if not clean and name != "/d/clean":
        fs.unlink("/d/clean")
    return fs


def opened(name: str, content: bytes, *, clean: bool) -> bool:
    """Whether a directory with this file opens, and closes; then every record that was flushed is there. It is looked at first."""
    fs = disk_with(name, content, clean=clean)
    with suppress(LogCorrupt, UsageError):
        plan_of(fs, "/d")
    try:
        directory, log = reopened(fs)
    except (LogCorrupt, UsageError):
        assert name in ("/d/meta", "/d/catalogue")
        return False
    assert content_of(log).batches == HELD
    log.producers.expire(0, log.end_offset, BrokerConfig())
    directory.close(clean=True)
    return True


def test_what_is_written_has_its_shape() -> None:
    for name, shape in SHAPES.items():
        assert fits(msgpack.unpackb(unseal(FILES[name]) or b"", strict_map_key=False), shape), name
    assert fits(msgpack.unpackb(FILES["/d/catalogue"][8:]), CATALOGUE)


def changed(value: Any, wrong: object) -> Iterator[Any]:
    """The value with each of its parts, one after the other, replaced."""
    yield wrong
    if isinstance(value, list):
        for at, part in enumerate(value):
            for other in changed(part, wrong):
                yield [*value[:at], other, *value[at + 1 :]]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("wrong", [None, 1.5, {}])
def test_a_wrong_part_is_found_wherever_it_is(name: str, wrong: object) -> None:
    value = msgpack.unpackb(unseal(FILES[name]) or b"", strict_map_key=False)
    parts = list(changed(value, wrong))
    assert not any(fits(part, SHAPES[name]) for part in parts)
    for part in parts:
        if name != "/d/meta":
            assert opened(name, seal(msgpack.packb(part)), clean=False)


def test_a_writer_without_batches_and_columns_of_another_length() -> None:
    producer = [7, 0, True, [[0, 1, 0, 5, 9]]]
    assert fits([False, [producer], []], PRODUCERS)
    assert not fits([False, [[*producer[:3], []]], []], PRODUCERS)
    assert fits([True, [producer, producer], [producer], [[3, *producer]]], PRODUCERS)
    recent, short = producer[3], [[0, 1, 0, 5]]
    for wrong in (producer[:3], [*producer, 1], [7, True, True, recent], [7, 0, 1, recent], [7, 0, True, short], [7, 0, True, [5]]):
        assert not fits([False, [producer, wrong], []], PRODUCERS)
        assert not fits([False, [], [wrong, producer]], PRODUCERS)
        assert not fits([False, [], [], [[3, *producer], [3, *wrong]]], PRODUCERS)
    for no_row in ([], [None], ["3", *producer], producer, 7):
        assert not fits([False, [], [], [[3, *producer], no_row]], PRODUCERS)
    value = msgpack.unpackb(unseal(FILES[INDEX]) or b"")
    assert not fits([*value[:4], [*value[4][:2], value[4][2] + b"12345678"], *value[5:]], SUMMARY)


def test_who_wants_an_index_does_not_look_at_producers() -> None:
    payload = unseal(FILES[INDEX]) or b""
    whole = unpack(payload, SUMMARY)
    assert whole is not None
    assert unpack_first(payload, SUMMARY[:-1]) == whole[:-1]
    assert unpack_first(payload[: -len(msgpack.packb(whole[-1]))] + b"\xc1 is no msgpack", SUMMARY[:-1]) == whole[:-1]


def test_what_is_no_list_with_such_a_beginning_is_nothing() -> None:
    shape = (int, str)
    assert unpack_first(msgpack.packb([1, "x", None]), shape) == [1, "x"]
    for value in ([1], [1, 2], [], {1: "x"}, 1, None, "x"):
        assert unpack_first(msgpack.packb(value), shape) is None
    for torn in range(4):
        assert unpack_first(msgpack.packb([1, "x", None])[:torn], shape) is None
    long = [b"\xdd\xff\xff\xff\xff\x01", b"\x92\x01\xdb\xff\xff\xff\xff"]  # so they say
    for broken in (b"\xc1", b"\x92\x01\xc1", b"\x92\x01\xa1\xff", b"\x92\x01\x81\x90\x01", *long):
        assert unpack_first(broken, shape) is None


@pytest.mark.parametrize(("name", "other"), list(permutations(NAMES, 2)))
def test_an_intact_file_in_the_place_of_another(name: str, other: str) -> None:
    for clean in (True, False):
        assert opened(name, FILES[other], clean=clean) == (name not in ("/d/meta", "/d/catalogue"))


VALUES: list[Any] = [
    None, 0, "x", b"", {}, [], [None], [[]], [0], [1, 2], [1, 2, 3], [[1, 2, 3]], [[b"", 0, 0, 0, 0, 0]], [[b"i" * 16, 0, 0, "1", 0, 0]],
    ["boot", "odd", []], ["boot", "none", [1]], ["boot", "none", [], 1], [0, 0], [0, [[b"i" * 16, 0, 0, []]]], ["a", "b", True],
    {"kind": 1},
    [0, 0, 0, 0, [b"", b"", b"x" * 8], [], [False, [], []]], [1, 2, 3, 4, [b"1"] * 3, [[0, 0]], [0, [[7, 0, False, []]], []]],
    {"kind": "replog log directory"}, {"kind": "replog log directory", "format": "1", "directory_id": "x"},
]  # fmt: skip


@pytest.mark.parametrize("name", [one for one in NAMES if one != "/d/catalogue"])
@pytest.mark.parametrize("value", [*VALUES, "nothing at all"], ids=lambda value: repr(value)[:30])
def test_a_value_of_another_shape(name: str, value: Any) -> None:
    content = seal(b"" if value == "nothing at all" else msgpack.packb(value))
    for clean in (True, False):
        assert opened(name, content, clean=clean) == (name != "/d/meta")


def test_a_seal_on_nothing_is_damage() -> None:
    fs = MemoryFs.holding({"/x": seal(b""), "/y": seal(b"\x81\x90\x01")}, [])
    assert fs.content("/x") == b"RLcp\0\0\0\0"
    assert read_plain(fs, "/x") is None
    assert read_plain(fs, "/y") is None  # a map with a key that cannot be one


ID = IDENTITY.topic_id
CHANGES: list[Any] = [
    None, 0, {}, [0], [[]], [[0]], [[3, ID, 0, 0]], [[0, ID, 0, 0, "t"]], [[0, ID, 0, 0, 5, {}]], [[0, b"x", 0, 0, "t", {}]],
    [[0, ID, -1, 0, "t", {}]], [[0, ID, 0, "0", "t", {}]], [[0, ID, 0, 0, "t", []]], [[0, ID, 0, 0, "t", {"flush": []}]],
    [[0, ID, 0, 0, "t", {"flush": "never"}]], [[0, ID, 0, 0, "t", {1: 2}]], [[1, ID, 0, 0]], [[1, ID, 0, 0, "x"]],
    [[2, ID, 0, 0, 0]],
]  # fmt: skip


@pytest.mark.parametrize("changes", CHANGES, ids=lambda value: repr(value)[:40])
def test_a_catalogue_entry_that_matches_its_checksum_and_says_nothing(changes: Any) -> None:
    payload = msgpack.packb(changes)
    entry = len(payload).to_bytes(4, "little") + crc32c(payload).to_bytes(4, "little") + payload
    fs = disk_with("/d/catalogue", FILES["/d/catalogue"] + entry, clean=True)
    before = fs.snapshot()
    with pytest.raises(LogCorrupt, match=rf"/d/catalogue: the entry at byte {len(FILES['/d/catalogue'])} is damaged"):
        open_directory(fs, LIMITS)
    assert {path: content for path, content in fs.snapshot().items() if not path.endswith("lock")} == {
        path: content for path, content in before.items() if not path.endswith("lock")
    }


def test_a_truth_is_no_number() -> None:
    assert fits([3, "c"], OWNER)
    assert not fits([True, "c"], OWNER)
