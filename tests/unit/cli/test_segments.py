"""`replog log dump FILE`: one segment, copied out of a machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Ran, log_folder, run_with, stopped_broker


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment of two batches, of two records each, at offset 4."""
    data = stopped_broker(tmp_path_factory.mktemp("data") / "data")
    return sorted(log_folder(data).glob("*.log"))[1]


@pytest.fixture
def copied(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path / "copied"))


def dump(file: Path, *words: str) -> Ran:
    return run_with(None, "log", "dump", str(file), *words)


def test_the_batches_of_a_segment(copied: Path) -> None:
    size, before = copied.stat().st_size, copied.read_bytes()
    half = size // 2
    ran = dump(copied)
    head, names, *rows, last = ran.lines
    assert (ran.status, ran.stderr) == (0, "")
    assert head.endswith(f"-0: offsets 4 to 8, {size} of {size} bytes, {copied}")
    assert names.split("  ")[0] == "position"
    assert names.split()[-4:] == ["producer", "codec", "bytes", "crc"]
    assert [(row.split()[:4], row.split()[-3:]) for row in rows] == [
        (["0", "4-5", "2", "0"], ["lz4", str(half), "ok"]),
        ([str(half), "6-7", "2", "0"], ["lz4", str(half), "ok"]),
    ]
    assert max(map(len, [names, *rows])) <= 100
    assert last == "2 batches, 4 records; all of them valid"
    assert copied.read_bytes() == before


def test_programs_get_a_line_for_each_and_one_for_all(copied: Path, original: Path) -> None:
    first, *records, second, _, _, whole = dump(copied, "--records", "--format", "json").json_lines
    assert (first["position"], first["base_offset"], first["last_offset"], first["records"]) == (0, 4, 5, 2)
    assert (first["crc_ok"], first["valid"], first["leader_epoch"], first["codec"]) == (True, True, 0, "lz4")
    assert first["producer_id"] >= 0
    assert [(one["offset"], one["key"], one["value"][:5]) for one in records] == [(4, None, "order"), (5, "k", "two 2")]
    assert second["base_offset"] == 6
    size = copied.stat().st_size
    assert whole["segment"] == {
        "log": first["log"],
        "file": str(copied),
        "bytes": size,
        "batches": 2,
        "records": 4,
        "base_offset": 4,
        "end_offset": 8,
        "valid_bytes": size,
        "reason": None,
        "intact": True,
    }
    in_place = dump(original.parent, "--format", "json").json_lines
    same = {key: value for key, value in first.items() if key not in ("log", "file", "crc_ok", "valid")}
    assert same in [{key: one[key] for key in same} for one in in_place], "the same as of the directory"


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def cut(file: Path, count: int) -> None:
    os.truncate(file, file.stat().st_size - count)


@pytest.mark.parametrize(
    ("harm", "status", "valid", "shown", "why"),
    [
        (lambda f: flip(f, 120), 1, (0, 4), [False, True], "the batch does not match its payload checksum"),
        (lambda f: flip(f, f.stat().st_size - 1), 1, (134, 6), [True, False], "the batch does not match its payload checksum"),
        (lambda f: flip(f, 140), 1, (134, 6), [True], "no batch with a valid header"),
        (lambda f: flip(f, 3), 1, (0, 6), [True], "no batch with a valid header"),
        (lambda f: cut(f, 5), 0, (134, 6), [True], "129 bytes of a batch of 134"),
        (lambda f: cut(f, 120), 0, (134, 6), [True], "14 bytes of a batch header"),
        (lambda f: f.write_bytes(2 * f.read_bytes()), 1, (268, 8), [True] * 4, "offset 4 of log "),
    ],
)
def test_where_the_valid_part_ends_and_why(
    copied: Path, harm: Callable[[Path], Any], status: int, valid: tuple[int, int], shown: list[bool], why: str
) -> None:
    assert copied.stat().st_size == 268
    harm(copied)
    ran = dump(copied, "--format", "json")
    *lines, whole = ran.json_lines
    assert ran.status == status
    assert (whole["segment"]["valid_bytes"], whole["segment"]["end_offset"]) == valid
    assert whole["segment"]["reason"].startswith(why)
    assert whole["segment"]["intact"] == (status == 0)
    assert [one["crc_ok"] for one in lines if "crc_ok" in one] == shown, "what is behind it is shown as well"
    assert all(one["valid"] == (one["position"] < valid[0]) for one in lines if "valid" in one)
    text = dump(copied)
    assert text.status == status
    unfinished = "unfinished write (no damage in the last segment of a log): "
    (named,) = [line for line in text.lines if line.startswith(("DAMAGED: ", unfinished))]
    assert named.startswith("DAMAGED") == (status == 1)
    assert f"{copied} at position {valid[0]}: " in named
    assert why in named
    assert text.lines[-1].endswith(f"; valid up to position {valid[0]} of {copied.stat().st_size}, offset {valid[1]}")
    assert [line.split()[-1] for line in text.lines if line.endswith(("  ok", "  BAD"))] == ["ok" if ok else "BAD" for ok in shown]


def test_a_name_that_is_another_segments(copied: Path) -> None:
    renamed = copied.rename(copied.parent / "00000000000000000006.log")
    ran = dump(renamed)
    assert ran.status == 1
    assert f"DAMAGED: {renamed} at position 0: it begins at offset 4, and its name says 6" in ran.lines
    assert dump(renamed.rename(renamed.parent / "00000000000000000004.log")).status == 0


@pytest.mark.parametrize("content", [b"x", b"\0" * 4096, b"LR" * 4096, os.urandom(200_000)])
def test_what_is_no_segment_is_refused(tmp_path: Path, content: bytes) -> None:
    (file := tmp_path / "notes.txt").write_bytes(content)
    ran = dump(file)
    assert (ran.status, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"replog: {file} is no segment that can be read: ")
    assert ran.stderr.endswith(", and no batch has a valid header anywhere in it\n")


def test_an_empty_file_is_a_segment_by_its_name_alone(tmp_path: Path) -> None:
    (file := tmp_path / "00000000000000000042.log").touch()
    ran = dump(file)
    assert (ran.status, ran.stdout) == (0, f"{file} is empty: it begins at offset 42, and has no batch\n")
    assert dump(file, "--format", "json").json["segment"]["end_offset"] == 42
    (other := tmp_path / "other").touch()
    assert (dump(other).status, "is empty, and its name is not that of a segment" in dump(other).stderr) == (2, True)


def test_what_goes_with_a_directory_alone(copied: Path) -> None:
    refused = dump(copied, "--topic", "orders")
    assert (refused.status, refused.stderr) == (2, f"replog: --topic chooses logs of a directory, and {copied} is a file\n")
    for verb in ("verify", "repair"):
        ran = run_with(None, "log", verb, str(copied))
        assert ran.status == 2
        assert "(of a segment alone, replog log dump shows what is in it)" in ran.stderr


def test_a_link_leads_to_it(copied: Path) -> None:
    (link := copied.parent / "link").symlink_to(copied)
    assert dump(link).stdout == dump(copied).stdout
