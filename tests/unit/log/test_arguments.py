"""What a log that is used alone refuses: every error is a UsageError that names the value, and nothing has happened."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replog.config import TopicConfig
from replog.errors import LogDamaged, LogFull, ReplogError, UsageError
from replog.log.files import OS
from replog.log.log import FileLog
from replog.log.memory import MemoryLog
from replog.model import PartitionId
from replog.ports import Log
from replog.records import Record
from replog.testing.disk import MemoryFs
from replog.testing.log_samples import append, batch_of, refuses_what_is_not_next


@pytest.fixture(params=["files", "memory"])
def log(request: pytest.FixtureRequest) -> Any:
    return FileLog.open("/log", fs=MemoryFs()) if request.param == "files" else MemoryLog(PartitionId(bytes(16), 0, 0))


@pytest.mark.parametrize(
    "records", ["abc", b"abc", bytearray(b"abc"), memoryview(b"abc"), {"k": "v"}, {"k"}, frozenset("k"), None, 5, Record("x")]
)
def test_what_is_no_list_of_records(log: Any, records: Any) -> None:
    with pytest.raises(UsageError, match="records is a list of values or Records, not ") as refused:
        log.append_records(records)
    assert repr(records) in str(refused.value)
    assert log.end_offset == 0
    assert log.append_records(iter({"k": "v"}.keys())) == (0, 0)
    assert log.append_records({"k": "v"}.values()) == (1, 1)
    assert [record.text() for record in log.records()] == ["k", "v"]


@pytest.mark.parametrize("offset", ["2", 1.5, [], True])
def test_what_is_no_offset(log: Any, offset: Any) -> None:
    log.append_records(["a"])
    with pytest.raises(UsageError, match=re.escape(f"start is an offset (int), or None, not {offset!r}")):
        log.records(offset)
    with pytest.raises(UsageError, match=re.escape(f"stop is an offset (int), or None, not {offset!r}")):
        log.records(0, offset)
    if isinstance(log, FileLog):
        with pytest.raises(UsageError, match=re.escape(f"offset is an int, not {offset!r}")):
            log.trim_to(offset)
    assert (log.start_offset, log.end_offset) == (0, 1)


def test_a_batch_that_is_not_the_next_one_is_not_stored() -> None:
    """One of another log was: the log could not be read from there on, and after a kill what was acknowledged behind it was gone."""
    fs = MemoryFs()
    with FileLog.open("/log", fs=fs) as log:
        append(log, ["kept"], epoch=3)
        refuses_what_is_not_next(log, 1, 3)
        assert log.append_records(["acknowledged"]) == (1, 1)
    with FileLog.open("/log", fs=fs) as log:
        assert [record.text() for record in log.records()] == ["kept", "acknowledged"]


def test_what_is_no_batch() -> None:
    with FileLog.open("/log", fs=MemoryFs()) as log:
        for call in (log.append, lambda given: log.append_many([given])):
            with pytest.raises(UsageError, match="a log appends RecordBatches, not 'abc'; append_records makes one of values"):
                call("abc")  # type: ignore[arg-type]
        assert log.append_records(["a"]) == (0, 0)


def test_a_log_ends_at_the_largest_offset(log: Any) -> None:
    """An end that fits into no field was found out when the next append came."""
    last = (1 << 63) - 1
    log.reset_to(last - 2)
    with pytest.raises(UsageError, match=f"the batch would end at offset {last + 1}; the largest one is {last}"):
        log.append_records(["a", "b", "c"])
    assert log.append_records(["a", "b"]) == (last - 2, last - 1)
    with pytest.raises(UsageError, match=f"would end at offset {last + 1}"):
        log.append_records(["c"])
    if isinstance(log, FileLog):
        beyond = batch_of(1)
        beyond.stamp(log.identity, last, 0)
        with pytest.raises(UsageError, match=f"would end at offset {last + 1}"):
            log.append(beyond)
    assert (log.end_offset, [record.text() for record in log.records()]) == (last, ["a", "b"])


_WRONG = {
    "offset is an int, not 'x'": lambda log: log.read("x", 1, 1),
    "limit is an int, not 0.5": lambda log: log.read(0, 0.5, 1),
    "max_bytes is an int, not None": lambda log: log.read(0, 1, None),
    "offset is -1; the log starts at 0": lambda log: log.read(-1, 1, 1),
    "timestamp_ms is an int, not True": lambda log: log.offset_for_time(True),
    "wall_ms is an int, not 'x'": lambda log: log.retained_start("x", 1),
    "limit is 0 to 9223372036854775807, not -1": lambda log: log.retained_start(1, -1),
    "offset is an int, not []": lambda log: log.group_floor([]),
    "offset is 0 to 9223372036854775807, not (a number of 16610 bits)": lambda log: log.group_floor(10**5_000),
    "epoch is an int, not 'x'": lambda log: log.enter_epoch("x"),
    "token is what flush() has returned, not None": lambda log: log.flushed(None),
}


@pytest.mark.parametrize(("why", "call"), _WRONG.items(), ids=_WRONG)
def test_what_no_call_takes(why: str, call: Callable[[FileLog], object]) -> None:
    with FileLog.open("/log", fs=MemoryFs()) as log:
        log.append_records(["a"])
        with pytest.raises(UsageError, match=f"^{re.escape(why)}$"):
            call(log)
        assert (log.start_offset, log.end_offset, log.last_epoch) == (0, 1, 0)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"config": {"flush": "ack"}}, "config is a TopicConfig, or None, not {'flush': 'ack'}; TopicConfig.from_mapping makes one"),
        ({"limits": {}}, "limits is a BrokerConfig, or None, not {}; BrokerConfig.from_mapping makes one"),
    ],
)
def test_settings_of_another_type(settings: dict[str, Any], why: str) -> None:
    fs = MemoryFs()
    with pytest.raises(UsageError, match=re.escape(why)):
        FileLog.open("/log", fs=fs, **settings)
    assert fs.listdir("/") == []
    with pytest.raises(UsageError, match=re.escape(why)):
        MemoryLog(PartitionId(bytes(16), 0, 0), **settings)


def test_a_place_where_no_log_can_be(tmp_path: Path) -> None:
    """As with `Cluster`: the system's reason in a UsageError; a full disk, or a broken one, is told as such."""
    for path in (Path("/proc/x"), tmp_path / ("n" * 300), Path("/dev/null/x")):
        with pytest.raises(UsageError, match=re.escape(str(path))):
            Log.open(path)
    with pytest.raises(UsageError, match=r"path is .*; it cannot be written in the encoding of file names"):
        Log.open(str(tmp_path / "\ud800"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EROFS, UsageError), (errno.EACCES, UsageError), (errno.ENOSPC, LogFull), (errno.EIO, LogDamaged)]
)
def test_a_folder_that_cannot_be_made(number: int, kind: type[ReplogError]) -> None:
    class Refusing(MemoryFs):
        def mkdir(self, path: str) -> None:
            raise OSError(number, os.strerror(number), path)

    with pytest.raises(kind, match=f"/log cannot be opened: {os.strerror(number)}"):
        FileLog.open("/log", fs=Refusing())


def test_a_log_in_memory_has_no_place_to_open(tmp_path: Path) -> None:
    """It quietly was one in files."""
    with pytest.raises(UsageError, match=r"MemoryLog has no files to open: Log\.open"):
        MemoryLog.open(tmp_path / "log")
    assert list(tmp_path.iterdir()) == []
    with Log.open(tmp_path / "log", fs=OS) as log:
        assert isinstance(log, FileLog)


def test_a_log_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process went elsewhere: the log failed at its next segment, and its close wrote over the notes of a log of that name there."""
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "there")
    with Log.open("journal") as other:
        other.reset_to(1_000)
    monkeypatch.chdir(tmp_path / "here")
    with Log.open("journal", config=TopicConfig(segment_bytes=1_024)) as log:
        monkeypatch.chdir(tmp_path / "there")
        for number in range(30):
            assert log.append_records(["x" * 100]) == (number, number)
    with Log.open("journal") as other:
        assert (other.start_offset, other.end_offset) == (1_000, 1_000)
    with Log.open(tmp_path / "here" / "journal") as log:
        assert (log.end_offset, log.loss and log.loss.kind) == (30, "none")


def test_a_path_through_a_symbolic_link_is_left_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is behind "link/.." is above the place that the link leads to."""
    (tmp_path / "data" / "now").mkdir(parents=True)
    (tmp_path / "link").symlink_to("data/now")
    monkeypatch.chdir(tmp_path)
    Log.open("link/../log").close()
    assert (tmp_path / "data" / "log").is_dir()


def test_a_relative_path_in_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match="path is 'log', and the current folder is gone; name it from the root"):
        Log.open("log")
    Log.open(tmp_path / "log").close()
