"""Real processes: killed while they write, forked while a log is open, and two on one directory."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.log.lives import IDENTITY, LIMITS, SMALL

from replog.errors import LogClosed, UsageError
from replog.log.directory import FileLogDirectory
from replog.log.log import FileLog
from replog.ports import LogStart
from replog.testing.log_contract import append, flush, shown

pytestmark = pytest.mark.processes

KILLS = 60

WRITER = """
import os, sys
from replog.config import BrokerConfig, TopicConfig
from replog.log.directory import FileLogDirectory
from replog.model import PartitionId
from replog.ports import LogStart
from replog.testing.log_contract import TOPIC_ID, append, flush

directory = FileLogDirectory(sys.argv[1], limits=BrokerConfig(index_interval_bytes=200, open_files_max=8))
starts = [LogStart(PartitionId(TOPIC_ID, n, 0), "t", TopicConfig(segment_bytes=2_000)) for n in range(3)]
logs = directory.create(starts)
for step in range(1_000_000):
    log = logs[step % 3]
    append(log, [f"{log.end_offset + n}" for n in range(step % 4 + 1)], producer=(step % 3, 0, log.end_offset))
    if step % 7 == 0:
        flush(log)
    if step % 31 == 0:
        directory.checkpoint()
    os.write(1, (step % 3).to_bytes(1, "little") + log.end_offset.to_bytes(8, "little"))
"""


def writer(folder: Path) -> subprocess.Popen[bytes]:
    """A process that appends until it is killed, and says for each append how far that log reaches."""
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE)


def acknowledged(process: subprocess.Popen[bytes], count: int) -> list[int]:
    """Read so many acknowledgements, kill the process, and read what it still managed to say; the end of each log."""
    assert process.stdout is not None
    said = process.stdout.read(9 * count)
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read()
    process.stdout.close()
    process.wait()
    ends = [0, 0, 0]
    for log, end in struct.iter_unpack("<Bq", said[: len(said) // 9 * 9]):
        ends[log] = end
    return ends


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    """A killed process loses nothing (P-51): the page cache survives, and a torn write is cut."""
    toss = random.Random(9)
    ends, running = [0, 0, 0], writer(tmp_path)
    for _ in range(KILLS):
        ends = [max(pair) for pair in zip(ends, acknowledged(running, toss.randrange(1, 40)), strict=True)]
        directory = FileLogDirectory(str(tmp_path), limits=LIMITS)
        assert directory.loss.kind == "process"
        assert directory.loss.lossy == ()
        for identity, end in zip(directory.identities(), ends, strict=True):
            log = directory.get(identity)
            assert log is not None
            assert end <= log.end_offset <= end + 4, "at most one append more than was acknowledged"
            assert log.start_offset == 0
            assert all(int(value or b"") == offset for offset, value in enumerate(shown(log)))
            ends[identity.partition] = log.end_offset
        directory.close(clean=False)
        running = writer(tmp_path)
    acknowledged(running, 1)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    directory = FileLogDirectory(str(tmp_path / "d"))
    before = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*"))
    script = "import sys; from replog.log.directory import FileLogDirectory; FileLogDirectory(sys.argv[1])"
    second = subprocess.run([sys.executable, "-c", script, str(tmp_path / "d")], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"UsageError: log directory {tmp_path / 'd'} is in use" in second.stderr
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("*")) == before
    directory.close(clean=True)
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path / "d")], check=False).returncode == 0


def in_child(body: Callable[[], object]) -> str:
    """Run a function in a forked child; what it returns, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(body())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as answer:
        return answer.read().decode()


def test_logs_are_dead_in_a_forked_child(tmp_path: Path) -> None:
    directory = FileLogDirectory(str(tmp_path / "d"), limits=LIMITS)
    (log,) = directory.create([LogStart(IDENTITY, "t", SMALL)])
    for _ in range(10):
        append(log, 2)
    log.forget_tail()
    (part, *_) = log.read(0, 4, 1 << 20)
    mine = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}
    assert [path for path in mine if str(tmp_path) in path]

    def child() -> str:
        held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
        assert not [path for path in held if str(tmp_path) in path], held
        calls = [
            lambda: append(log, 2),
            lambda: log.read(0, 4, 100),
            lambda: log.truncate_to(0),
            lambda: flush(log),
            lambda: directory.create([LogStart(IDENTITY._replace(partition=4), "t", SMALL)]),
            lambda: directory.checkpoint(),
        ]
        for call in calls:
            with pytest.raises(LogClosed, match="fork"):
                call()
        assert len(part.view()) == 0
        part.release()
        log.close()
        directory.close(clean=True)
        return "dead"

    assert in_child(child) == "dead"
    append(log, 2)
    assert len(shown(log)) == 22
    with pytest.raises(UsageError):
        FileLogDirectory(str(tmp_path / "d"))
    directory.close(clean=True)
    assert FileLogDirectory(str(tmp_path / "d")).loss.kind == "none"


def test_a_log_on_its_own_is_dead_in_a_forked_child(tmp_path: Path) -> None:
    with FileLog.open(str(tmp_path)) as log:
        log.append_records(["a"])
        assert "LogClosed" in in_child(lambda: log.append_records(["b"]))
        assert in_child(log.close) == "None"
        log.append_records(["c"])
        assert [record.value for record in log.records()] == [b"a", b"c"]
