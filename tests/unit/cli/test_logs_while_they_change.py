"""`replog log verify` and `dump` beside a broker that cuts and deletes, on a disk that fails, and at what a newer version wrote."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import run_with
from tests.unit.cli.test_logs import data, flip, killed, look, segments

import replog
from replog.cli.copies import FS, Damage, Report, examine, find
from replog.cli.output import Output
from replog.cli.progress import Progress, shown_progress
from replog.log.checkpoint import read_plain, write_plain
from replog.log.files import OS

__all__ = ["data"]  # the fixture


def test_a_log_that_is_deleted_before_it_is_read_is_not_damaged(tmp_path: Path) -> None:
    with replog.Cluster(tmp_path / "data", brokers=1) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["x"] * 10)
        cluster.stop_broker(1)  # so that all of it is known to be flushed
        (place,) = find(str(tmp_path / "data"))
        (copy,) = place.copies
        assert copy.flushed_end == 10
        cluster.start_broker(1)
        cluster.delete_topic("t")
        assert examine(copy).damages, "what the directory said before"
        report = examine(copy, place.now)
        assert (report.state, report.damages) == ("deleted meanwhile", [])


def test_a_command_goes_on_behind_a_log_that_was_deleted(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find(str(data))
    deleted = next(copy for copy in found[0].copies if copy.topic == "other")
    monkeypatch.setattr("replog.cli.logs.find", lambda path: found)
    monkeypatch.setattr("replog.cli.copies.Place.now", lambda self, copy: None if copy == deleted else copy)
    (Path(deleted.folder) / segments(Path(deleted.folder).parent.parent)[0].name).unlink()
    for verb in ("verify", "dump"):
        assert look(verb, data).status == 0
    states = {log["topic"]: log["state"] for log in look("verify", data, "--format", "json").json["logs"]}
    assert states == {"orders": "intact", "empty": "intact", "other": "deleted meanwhile"}


def test_a_log_that_is_truncated_before_it_is_read_is_not_damaged(tmp_path: Path) -> None:
    """The checkpoint that was read first says that more was flushed than there is since the truncation."""
    directory = killed(tmp_path)
    (file,) = segments(directory)
    (copy,) = find(str(directory))[0].copies
    entries = [[*copy.identity, 0, 0, 5]]
    write_plain(OS, str(directory), "checkpoint", entries)
    (place,) = find(str(directory))
    (copy,) = place.copies
    assert examine(copy, place.now).damages == []
    os.truncate(file, 0)
    assert examine(copy, place.now).damages, "flushed, and gone without a word"
    entries[0][5] = 0
    write_plain(OS, str(directory), "checkpoint", entries)
    assert read_plain(OS, f"{directory}/checkpoint") == entries
    report = examine(copy, place.now)
    assert (report.state, report.end_offset) == ("intact", 0)


def test_a_log_that_changes_under_every_reading(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else seems damaged each time: nothing of it is damage, and nothing is said to be intact."""
    found = find(str(data))
    torn = iter(range(100))

    def run(reading: Any) -> Report:
        return Report(reading.copy, damages=[Damage(reading.copy.folder, next(torn), "torn")])

    monkeypatch.setattr("replog.cli.copies._Reading.run", run)
    report = examine(found[0].copies[0], found[0].now)
    assert (report.state, report.damages, next(torn)) == ("changing", [], 5)
    ran = look("verify", data, "--format", "json")
    assert (ran.status, {log["intact"] for log in ran.json["logs"]}) == (0, {False})


def test_a_folder_that_goes_while_the_directory_is_looked_at(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name was read, then its broker removed it, and then the catalogue was read: that does not know it any more."""
    lists: list[str] = []

    def listed(self: object, path: str) -> list[str]:
        lists.append(path)
        return sorted([*os.listdir(path), *([f"{'ab' * 16}-0-0"] if len(lists) == 2 else [])])

    monkeypatch.setattr(type(FS), "listdir", listed)
    (place,) = find(str(data))
    assert (place.damages, len(place.copies)) == ([], 3)
    assert lists[1:3] == [f"{data}/logs"] * 2


class FailingDisk:
    """Some files cannot be opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken: set[str] = set()
        opened = type(FS).open

        def open_(fs: Any, path: str, *, create: bool = False) -> int:
            if path in self.broken:
                raise OSError(errno.EIO, "Input/output error", path)
            return opened(fs, path, create=create)

        monkeypatch.setattr(type(FS), "open", open_)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FailingDisk:
    return FailingDisk(monkeypatch)


def test_a_file_that_the_disk_does_not_give_ends_nothing(data: Path, disk: FailingDisk) -> None:
    first, *_, last = segments(data)
    disk.broken = {str(first)}
    flip(last, last.stat().st_size - 1)
    ran = look("verify", data, "--format", "json")
    assert (ran.status, ran.json["intact"]) == (1, False)
    assert ran.json["unreadable"] == [{"file": str(first), "reason": "Input/output error"}]
    assert [damage["file"] for damage in ran.json["damages"]] == [str(last)], "what is behind it was looked at"
    assert {log["topic"]: log["state"] for log in ran.json["logs"]} == {"orders": "DAMAGED", "empty": "intact", "other": "intact"}
    flip(last, last.stat().st_size - 1)
    text = look("verify", data)
    assert (text.status, text.lines[-1]) == (1, "3 logs, files that cannot be read: 1")
    assert f"UNREADABLE: {first}: Input/output error" in text.lines
    assert [line.split()[-1] for line in text.lines[1:4]].count("UNREADABLE") == 1
    dumped = look("dump", data, "--format", "json")
    assert dumped.status == 1
    assert {"unreadable": {"file": str(first), "reason": "Input/output error"}} in dumped.json_lines
    offsets = [line["base_offset"] for line in dumped.json_lines if line.get("log") == "orders-0"]
    assert (offsets[-1], 0 in offsets) == (18, False)
    assert [line["base_offset"] for line in dumped.json_lines if line.get("log") == "other-0"] == [0]


def test_nothing_that_was_flushed_is_called_missing_where_it_could_not_be_read(data: Path, disk: FailingDisk) -> None:
    disk.broken = {str(segments(data)[-1])}
    ran = look("verify", data, "--format", "json").json
    assert (ran["damages"], len(ran["unreadable"])) == ([], 1)


@pytest.mark.parametrize("name", ["meta", "catalogue", "checkpoint", "clean", "life"])
def test_a_small_file_that_the_disk_does_not_give(data: Path, disk: FailingDisk, name: str) -> None:
    disk.broken = {f"{data}/{name}"}
    ran = look("verify", data, "--format", "json")
    assert (ran.status, ran.json["damages"]) == (1, [])
    assert [one["file"] for one in ran.json["unreadable"]] == [f"{data}/{name}"]
    assert sorted(log["end_offset"] for log in ran.json["logs"] if log["bytes"]) == [1, 20], "the logs are verified all the same"


def test_the_folder_of_the_logs_cannot_be_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(self: object, path: str) -> list[str]:
        if path.endswith("/logs"):
            raise OSError(errno.EIO, "Input/output error", path)
        return sorted(os.listdir(path))

    monkeypatch.setattr(type(FS), "listdir", listed)
    ran = look("verify", data, "--format", "json")
    assert (ran.status, [one["file"] for one in ran.json["unreadable"]]) == (1, [f"{data}/logs"])
    assert sorted(log["end_offset"] for log in ran.json["logs"]) == [0, 1, 20]


@pytest.mark.parametrize("verb", ["verify", "dump"])
def test_a_newer_format_is_refused(data: Path, verb: str) -> None:
    meta = read_plain(OS, f"{data}/meta")
    write_plain(OS, str(data), "meta", {**meta, "format": 2})
    refused = look(verb, data)
    assert (refused.status, refused.stdout) == (2, "")
    reads = f"{data} has format 2; this version of the library reads up to 1: look at it with the version whose broker writes it"
    assert refused.stderr == f"replog: {reads}\n"
    write_plain(OS, str(data), "meta", ["other"])
    assert "is no log directory" in look(verb, data).stderr


def test_a_log_that_is_cut_while_it_is_shown(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was in order when it was verified, and is when it is verified again."""
    first = str(segments(data)[0])
    pread = os.pread
    reads: list[int] = []

    def cut(fd: int, count: int, position: int) -> bytes:
        found = pread(fd, count, position)
        if os.readlink(f"/proc/self/fd/{fd}") == first:
            reads.append(position)
            return b"" if len(reads) == 3 else found
        return found

    monkeypatch.setattr(type(FS), "pread", staticmethod(cut))
    dumped = look("dump", data, "--topic", "orders", "--format", "json")
    assert dumped.status == 0
    assert [line["changed"]["file"] for line in dumped.json_lines if "changed" in line] == [first]
    assert [line for line in dumped.json_lines if "damage" in line] == []


class Terminal(io.StringIO):
    """A person looks at stderr."""

    def isatty(self) -> bool:
        return True


def test_progress_shows_what_takes_long_and_goes_in_the_end() -> None:
    now = [0.0]
    stderr = Terminal()
    progress = Progress(Output(io.BytesIO(), stderr), 4 << 20, lambda: now[0])
    progress.add(1 << 20)
    progress.end()
    assert stderr.getvalue() == "", "nothing that is done at once"
    for now[0] in (1.0, 1.1, 1.3):
        progress.add(1 << 20)
    shown = [part for part in stderr.getvalue().split("\r") if part.strip()]
    assert [part.split("]")[1].split() for part in shown[::2]] == [["50", "%", "2", "of", "4", "MiB"], ["100", "%", "4", "of", "4", "MiB"]]
    progress.end()
    assert stderr.getvalue().endswith("\r")
    assert stderr.getvalue().split("\r")[-2].strip() == ""


def test_progress_is_for_terminals_only(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replog.cli.progress._SILENT_S", 0)
    assert run_with(None, "log", "verify", str(data)).stderr == ""
    stderr = Terminal()
    told: list[int] = []
    with shown_progress(Output(io.BytesIO(), stderr), lambda: 1 << 20) as read:
        assert read is not None
        (place,) = find(str(data))
        for copy in place.copies:
            examine(copy, place.now, lambda count: (told.append(count), read(count)))  # type: ignore[func-returns-value]
    assert sum(told) == sum(file.stat().st_size for file in (data / "logs").rglob("*.log"))
    assert "0 of 1 MiB" in stderr.getvalue()
