"""A log that an application opens by itself: its threads take turns, whatever they call."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import ENOSPC
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.interrupts import called_at, interrupted_at
from tests.threads import in_thread

from replog.config import TopicConfig
from replog.errors import LogClosed, LogDamaged, LogFull, UsageError
from replog.log.files import Fs, kill_in_child
from replog.log.log import FileLog
from replog.ports import Log
from replog.records import RecordBatch, encode_records
from replog.testing.disk import MemoryFs

THREADS = 4
CALLS = 250
_FILES = ("/log/log.py", "/log/tail.py", "/log/epochs.py", "/log/segment.py", "/log/segmented.py")
RECORD = RecordBatch(encode_records(["recorded"], now_ms=30))


@pytest.fixture(autouse=True)
def _threads_that_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(works: Sequence[Callable[[], None]], *beside: Callable[[], None]) -> list[BaseException]:
    """Run each on a thread of its own, those `beside` again and again until the others have ended; what they raised."""
    raised: list[BaseException] = []
    ended = threading.Event()

    def run(work: Callable[[], None], *, again: bool) -> None:
        try:
            work()
            while again and not ended.is_set():
                work()
        except BaseException as error:
            raised.append(error)

    others = [threading.Thread(target=run, args=(work,), kwargs={"again": True}) for work in beside]
    threads = [threading.Thread(target=run, args=(work,), kwargs={"again": False}) for work in works]
    for thread in (*others, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    for thread in others:
        thread.join()
    return raised


def stored(log: FileLog) -> dict[int, str]:
    return {record.offset: record.text() for record in log.records()}


def writers(log: FileLog, told: dict[int, str], when_half_done: Callable[[], None] = lambda: None) -> list[Callable[[], None]]:
    """Each appends batches of two records, and writes down what it was told."""

    def write(name: int) -> None:
        for number in range(CALLS):
            base, last = log.append_records([text := f"{name}.{number}", text])
            told[base] = told[last] = text
            if number == CALLS // 2:
                when_half_done()

    return [partial(write, name) for name in range(THREADS)]


@pytest.mark.parametrize("segment_bytes", [1 << 20, 2_000])
def test_each_thread_keeps_what_it_was_told(tmp_path: Path, segment_bytes: int) -> None:
    told: dict[int, str] = {}
    with FileLog.open(tmp_path / "log", config=TopicConfig(segment_bytes=segment_bytes)) as log:
        assert together(writers(log, told)) == []
        assert len(told) == log.end_offset == 2 * THREADS * CALLS
        assert stored(log) == told
    with FileLog.open(tmp_path / "log") as log:
        assert stored(log) == told


def test_one_reads_and_flushes_what_others_append(tmp_path: Path) -> None:
    told: dict[int, str] = {}
    with FileLog.open(tmp_path / "log", config=TopicConfig(segment_bytes=20_000)) as log:

        def read() -> None:
            offsets = [record.offset for record in log.records()]
            assert offsets == list(range(len(offsets)))

        def flush() -> None:
            token = log.flush()
            if token is not None:
                log.flushed(token.run())

        assert together(writers(log, told), read, flush) == []
        flush()
        assert log.flushed_end == log.end_offset == 2 * THREADS * CALLS
        assert stored(log) == told


def test_one_closes_while_others_append(tmp_path: Path) -> None:
    told: dict[int, str] = {}
    log = FileLog.open(tmp_path / "log")
    raised = together(writers(log, told, when_half_done=log.close))
    assert raised
    assert {type(error) for error in raised} == {LogClosed}
    with FileLog.open(tmp_path / "log") as log:
        assert CALLS <= len(told) == log.end_offset
        assert stored(log) == told


class Interrupting(MemoryFs):
    """A disk during whose next write something else happens, as when a signal comes."""

    during: Callable[[], object] | None = None

    def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:  # type: ignore[override]
        during, self.during = self.during, None
        written = super().pwritev(fd, buffers, position)
        if during is not None:
            during()
        return written


def batch_at(log: Log, offset: int) -> RecordBatch:
    batch = RecordBatch(RECORD.body)
    batch.stamp(log.identity, offset, 0)
    return batch


@pytest.mark.parametrize(
    ("call", "expected", "start", "end"),
    [
        (lambda log: list(stored(log)), [0, 1], 0, 2),
        (lambda log: [(part.base_offset, part.end_offset) for part in log.read(1, 9, 1 << 20)], [(1, 2)], 0, 2),
        (lambda log: log.flush().end, 2, 0, 2),
        (lambda log: log.trim_to(9), 2, 2, 2),
        (lambda log: log.retained_start(1 << 50, 9), 2, 0, 2),
        (lambda log: log.retain(1 << 50, 9), 2, 2, 2),
        (lambda log: log.offset_for_time(20), (1, 20), 0, 2),
        (lambda log: log.size_bytes, 2 * RECORD.length, 0, 2),
        (lambda log: log.append(batch_at(log, 2)), None, 0, 3),
        (lambda log: log.append_many([batch_at(log, 2), batch_at(log, 3)]), None, 0, 4),
        (lambda log: log.append_many([batch_at(log, 2)]), None, 0, 3),
        (lambda log: (log.trim_to(2), log.truncate_to(1)), (2, None), 1, 1),
        (lambda log: (log.enter_epoch(4), log.epochs.latest), (None, (4, 2)), 0, 2),
        (lambda log: log.truncate_to(1), None, 0, 1),
        (lambda log: log.reset_to(1), None, 1, 1),
        (lambda log: log.close(), None, 0, 2),
    ],
)
def test_a_call_of_another_thread_waits_for_the_end_of_an_append(
    call: Callable[[FileLog], object], expected: object, start: int, end: int
) -> None:
    fs, results = Interrupting(), []
    with FileLog.open("/log", fs=fs, config=TopicConfig(retention_ms=1)) as log:
        log.append_records(["recorded"], now_ms=10)
        other = threading.Thread(target=lambda: results.append(call(log)))

        def begin() -> None:
            other.start()
            other.join(timeout=0.1)  # without its turn it is done by then, and has seen half an append

        fs.during = begin
        assert log.append_records(["recorded"], now_ms=20) == (1, 1)
        other.join()
        assert results == [expected]
        assert (log.start_offset, log.end_offset) == (start, end)


CHANGES = {
    "append_records": lambda log: log.append_records(["handler"]),
    "append": lambda log: log.append(batch_at(log, 1)),
    "append_many": lambda log: log.append_many([batch_at(log, 1), batch_at(log, 2)]),
    "enter_epoch": lambda log: log.enter_epoch(3),
    "truncate_to": lambda log: log.truncate_to(0),
    "reset_to": lambda log: log.reset_to(5),
    "retain": lambda log: log.retain(1 << 50, 9),
    "trim_to": lambda log: log.trim_to(1),
}


@pytest.mark.parametrize("call", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_inside_a_call_of_the_same_thread_is_refused(call: Callable[[FileLog], object]) -> None:
    fs, refused = Interrupting(), []
    with FileLog.open("/log", fs=fs, config=TopicConfig(retention_ms=1)) as log:
        log.append_records(["first"], now_ms=10)

        def handler() -> None:
            with pytest.raises(UsageError, match="signal handler") as caught:
                call(log)
            refused.append(caught.value)

        fs.during = handler
        assert log.append_records(["second"], now_ms=20) == (1, 1)
        assert len(refused) == 1
        assert log.append_records(["third"], now_ms=30) == (2, 2)
        assert stored(log) == {0: "first", 1: "second", 2: "third"}
    with FileLog.open("/log", fs=fs) as log:
        assert stored(log) == {0: "first", 1: "second", 2: "third"}


def test_what_a_signal_handler_raises_takes_the_append_back_into_which_it_came() -> None:
    """Whatever it is: here the very refusal that it got."""
    fs = Interrupting()
    with FileLog.open("/log", fs=fs) as log:
        log.append_records(["first"])
        fs.during = lambda: log.append_records(["handler"])
        with pytest.raises(UsageError, match="signal handler"):
            log.append_records(["second"])
        assert stored(log) == {0: "first"}
    with FileLog.open("/log", fs=fs) as log:
        assert stored(log) == {0: "first"}


class Full(MemoryFs):
    """A disk on which no small file has room once it is full."""

    is_full = False

    def open(self, path: str, *, create: bool = False) -> int:
        if self.is_full and create:
            raise OSError(ENOSPC, "injected")
        return super().open(path, create=create)


class _Leave(BaseException):
    """As SystemExit, of a signal handler."""


def in_log(frame: FrameType) -> bool:
    """Not where turns are taken and the lock is let go: to the end of a `with`, and between two assignments, no signal handler comes."""
    return "/replog/log/" in frame.f_code.co_filename and frame.f_code.co_name not in ("taking_turns", "release")


class Successor:
    """Closes a log and opens it again as soon as it can, in a signal handler or afterwards, and appends to it; it stays open."""

    def __init__(self, log: FileLog, fs: MemoryFs, *, leaves: bool) -> None:
        self._log, self._fs, self._leaves = log, fs, leaves
        self.came = False
        self.opened: FileLog | None = None
        self.told: dict[int, str] = {}

    def handler(self) -> None:
        self.came = True
        self._log.close()
        self.follow()
        if self._leaves:
            raise _Leave

    def follow(self) -> None:
        with suppress(UsageError):
            self.opened = self.opened or FileLog.open("/log", fs=self._fs)
        if self.opened is not None and not self.told:
            self.told[self.opened.append_records(["successor"])[0]] = "successor"


def _closed_by_a_handler(
    line: int, call: Callable[[FileLog], object], *, leaves: bool, kinds: tuple[str, ...] = ("none",)
) -> tuple[bool, int]:
    """Have a handler close the log at a line of `call`: who opens it next has it alone, and what was acknowledged is there.

    Whether it came to that, and where the log ends.
    """
    fs = MemoryFs()
    log = FileLog.open("/log", fs=fs, config=TopicConfig(segment_bytes=300))
    told = {log.append_records(["first" * 9])[0]: "first" * 9}
    successor = Successor(log, fs, leaves=leaves)
    with suppress(_Leave, LogClosed):
        result = called_at(line, in_log, successor.handler, lambda: call(log))
        if isinstance(result, tuple):
            assert result[0] not in successor.told, "what is acknowledged is nobody else's"
            told[result[0]] = "second" * 9
    if successor.came:
        successor.follow()  # it is closed by now
        assert successor.told
    log.close()
    with successor.opened or FileLog.open("/log", fs=fs) as after:
        told |= successor.told
        found = stored(after)
        assert {offset: found.get(offset) for offset in told} == told
        assert fs.size("/log/clean") is None, "nothing says that it is closed"
        assert after.loss is not None
        assert after.loss.kind in kinds
    with FileLog.open("/log", fs=fs) as after:
        assert stored(after) == found
        assert after.loss is not None
        assert after.loss.kind == "none"
        return successor.came, after.end_offset


@pytest.mark.parametrize("leaves", [False, True], ids=["the handler returns", "the handler leaves"])
def test_a_signal_handler_closes_the_log_when_the_call_is_over_into_which_it_came(leaves: bool) -> None:
    """At every line of an append."""
    line, came, ends = 0, True, set()
    while came:
        line += 1
        came, end = _closed_by_a_handler(line, lambda log: log.append_records(["second" * 9]), leaves=leaves)
        ends.add(end)
    assert line > 60
    assert ends == {2, 3}


@pytest.mark.parametrize("leaves", [False, True], ids=["the handler returns", "the handler leaves"])
@pytest.mark.parametrize("name", ["close", "size_bytes"])
def test_a_signal_handler_closes_a_log_in_the_middle_of(name: str, leaves: bool) -> None:
    line, came = 0, True

    def call(log: FileLog) -> None:
        one = getattr(log, name)
        if callable(one):
            one()

    while came:
        line += 1
        kinds = ("none", "process") if leaves and name == "close" else ("none",)  # what broke a close off left no mark of it
        came, end = _closed_by_a_handler(line, call, leaves=leaves, kinds=kinds)
        assert end == 1 + came
    assert line > (200 if name == "close" else 3)


def test_a_signal_handler_closes_a_log_in_the_middle_of_retention() -> None:
    """It is made of other calls: the end of one of those is not yet the end."""

    class Renaming(MemoryFs):
        open_to_others = 0

        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            if target.endswith(".start"):
                with suppress(UsageError):
                    FileLog.open("/log", fs=self).close()
                    self.open_to_others += 1

    line, came = 0, True
    while came:
        line, fs = line + 1, Renaming()
        log = FileLog.open("/log", fs=fs, config=TopicConfig(retention_ms=1))
        log.append_records(["first"], now_ms=10)
        successor = Successor(log, fs, leaves=False)
        kept = {0: "first"}
        with suppress(LogClosed):  # it came before the turn
            called_at(line, in_log, successor.handler, partial(log.retain, 1 << 50, 9))
            kept = {}
        came = successor.came
        assert log._is_closed() == came
        log.close()
        successor.follow()
        assert successor.opened is not None
        assert successor.opened.loss is not None
        assert successor.opened.loss.kind == "none"
        assert stored(successor.opened) == {**kept, 1: "successor"}
        assert fs.size("/log/clean") is None
        successor.opened.close()
        assert not fs.open_to_others
    assert line > 20


def test_a_close_that_fails_leaves_no_log_behind_that_works() -> None:
    """Its folder may be somebody else's when the turn ends."""
    fs = Full()
    log = FileLog.open("/log", fs=fs)
    log.append_records(["first"])
    fs.is_full = True
    late: list[tuple[threading.Thread, list[object]]] = []
    leave = log._close_directory
    assert leave is not None

    def leave_while_somebody_waits(*, clean: bool) -> None:
        if clean:
            late.append(in_thread(partial(log.append_records, ["late"])))
        leave(clean=clean)

    log._close_directory = leave_while_somebody_waits
    with pytest.raises(LogFull):
        log.close()
    ((thread, outcome),) = late
    thread.join()
    assert [type(one) for one in outcome] == [LogClosed]


def test_an_interrupted_close_leaves_no_log_that_works_without_its_folder() -> None:
    line, interrupted = 0, True
    while interrupted:
        line, fs = line + 1, MemoryFs()
        log = FileLog.open("/log", fs=fs)
        log.append_records(["first"])
        interrupted = interrupted_at(line, in_log, log.close)
        with suppress(UsageError):  # it is locked still
            with FileLog.open("/log", fs=fs) as successor:
                assert successor.append_records(["successor"]) == (1, 1)
            with pytest.raises(LogClosed):
                log.append_records(["late"])
        log.close()
        with FileLog.open("/log", fs=fs) as log:
            assert log.end_offset in (1, 2)
    assert line > 100


BROKEN = {
    "truncate_to": lambda log: log.truncate_to(2),
    "reset_to": lambda log: log.reset_to(2),
    "trim_to": lambda log: log.trim_to(2),
    "trim_to the end": lambda log: log.trim_to(5),
    "retain": lambda log: log.retain(1 << 50, 9),
}


@pytest.mark.parametrize("by", ["Ctrl-C", "a refusal"])
@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_a_change_of_files_that_is_broken_off_is_mended_by_the_next_open(change: Callable[[FileLog], object], by: str) -> None:
    """At every line: what is left is a log, what is acknowledged afterwards is in it, and no file says that it was closed well."""
    line, came, ends = 0, True, set()

    def handler() -> None:
        nonlocal came
        came = True
        if by == "Ctrl-C":
            raise KeyboardInterrupt
        log.append_records(["in a handler"])  # is refused, and the handler does not mind

    while came:
        line, came, fs, told = line + 1, False, MemoryFs(), {}
        with FileLog.open("/log", fs=fs, config=TopicConfig(segment_bytes=300, retention_ms=1)) as log:
            for number in range(5):
                log.append_records([f"{number}" * 50], now_ms=1)
            with suppress(KeyboardInterrupt, UsageError):
                called_at(line, in_a_change, handler, partial(change, log))
            with suppress(LogDamaged):
                told[log.append_records(["acknowledged"], now_ms=2)[0]] = "acknowledged"
        with FileLog.open("/log", fs=fs) as log:
            found = stored(log)
            assert [*found] == [*range(log.start_offset, log.end_offset)]
            assert {offset: found[offset] for offset in told} == told
            assert all(text == f"{offset}" * 50 for offset, text in found.items() if offset not in told)
            ends.add(log.end_offset)
            assert log.append_records(["next"]) == (log.end_offset - 1, log.end_offset - 1)
    assert len(ends) > 1
    assert line > 20


def in_a_change(frame: FrameType) -> bool:
    """Where it has its turn: before that a handler is not inside of it."""
    return in_log(frame) and not frame.f_code.co_filename.endswith(("/log/shared.py", "/log/given.py"))


@pytest.mark.parametrize("name", ["truncate_to", "reset_to", "trim_to"])
@pytest.mark.parametrize(
    ("offset", "why"),
    [
        *[(offset, "offset is an int, not") for offset in ("1", None, 1.0, True)],
        *[(offset, f"offset is 0 to 9223372036854775807, not {offset}") for offset in (-1, 1 << 63)],
    ],
)
def test_what_is_no_offset_changes_nothing(name: str, offset: object, why: str) -> None:
    with FileLog.open("/log", fs=MemoryFs()) as log:
        log.append_records(["first"])
        with pytest.raises(UsageError, match=why):
            getattr(log, name)(offset)
        assert log.append_records(["second"]) == (1, 1)
        assert len(list(log.records())) == 2


@pytest.mark.parametrize(
    ("arguments", "why"),
    [(("x", 1), "wall_ms is an int, not 'x'"), ((1, None), "limit is an int, not None"), ((1, -1), "limit is 0 to .*, not -1")],
)
def test_a_retention_that_cannot_be_meant_changes_nothing(arguments: tuple[Any, ...], why: str) -> None:
    with FileLog.open("/log", fs=MemoryFs()) as log:
        log.append_records(["first"])
        with pytest.raises(UsageError, match=why):
            log.retain(*arguments)
        with pytest.raises(TypeError):
            log.retain()  # type: ignore[call-arg]
        assert log.append_records(["second"]) == (1, 1)


def test_a_close_that_is_interrupted_again_and_again_lets_go_in_the_end() -> None:
    fs = MemoryFs()
    log = FileLog.open("/log", fs=fs)
    log.append_records(["first"])
    leave, interrupts = log._close_directory, [KeyboardInterrupt, KeyboardInterrupt]
    assert leave is not None

    def interrupted(*, clean: bool) -> None:
        if interrupts:
            raise interrupts.pop()
        leave(clean=clean)

    log._close_directory = interrupted
    with pytest.raises(KeyboardInterrupt):
        log.close()
    with suppress(LogClosed):
        log.close()
    with FileLog.open("/log", fs=fs) as log:
        assert stored(log) == {0: "first"}


def test_a_log_that_is_closed_while_records_are_packed_is_left_to_who_opens_it() -> None:
    fs = MemoryFs()
    log = FileLog.open("/log", fs=fs)
    log.append_records(["first"])

    def records() -> Iterator[str]:
        log.close()
        with FileLog.open("/log", fs=fs) as successor:
            assert successor.append_records(["successor"]) == (1, 1)
        yield "late"

    with pytest.raises(LogClosed):
        log.append_records(records())
    with FileLog.open("/log", fs=fs) as log:
        assert stored(log) == {0: "first", 1: "successor"}


@pytest.mark.parametrize("leaves", [False, True])
def test_what_a_close_has_to_say_that_comes_after_the_call_is_said_by_the_next(leaves: bool) -> None:
    """The caller of an append is to hear what has become of that."""
    fs = Full()
    log = FileLog.open("/log", fs=fs)
    log.append_records(["first"])
    fs.is_full = True

    def handler() -> None:
        log.close()
        if leaves:
            raise _Leave

    def append() -> tuple[int, int]:
        return called_at(1, lambda frame: frame.f_code.co_name == "_count_in", handler, lambda: log.append_records(["second"]))

    if leaves:
        with pytest.raises(_Leave):
            append()
    else:
        assert append() == (1, 1)
    with pytest.raises(LogFull):
        log.close()
    log.close()
    fs.is_full = False
    with FileLog.open("/log", fs=fs) as log:
        assert len(stored(log)) == 2 - leaves


def test_an_append_that_could_not_be_taken_back_for_long_does_not_come_back() -> None:
    """Ctrl-C in the append, in what takes it back, and in the close that does it once more."""
    fs = Interrupting()
    log = FileLog.open("/log", fs=fs)
    log.append_records(["first"])

    def interrupted(call: Callable[[], object]) -> None:
        assert interrupted_at(2, lambda frame: frame.f_code.co_name == "_take_back", call)

    def interrupt() -> None:
        raise KeyboardInterrupt

    fs.during = interrupt
    interrupted(lambda: log.append_records(["second"]))
    interrupted(log.close)
    log.close()
    with FileLog.open("/log", fs=fs) as log:
        assert stored(log) == {0: "first"}


def test_a_child_that_a_signal_handler_forks_takes_back_nothing(tmp_path: Path) -> None:
    class Forking(Fs):
        armed = False

        def pwritev(self, fd: int, buffers: Sequence[bytes | memoryview], position: int) -> int:  # type: ignore[override]
            written = os.pwritev(fd, buffers, position)
            if self.armed:
                self.armed = False
                child = os.fork()
                if not child:
                    signal.alarm(20)
                    raise _Leave
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            return written

    with FileLog.open(tmp_path / "log", fs=(fs := Forking())) as log:
        log.append_records(["first"])
        fs.armed = True
        try:
            assert log.append_records(["second"]) == (1, 1)
        except _Leave:
            os._exit(7)
    with FileLog.open(tmp_path / "log") as log:
        assert stored(log) == {0: "first", 1: "second"}


def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have(tmp_path: Path) -> None:
    held, done = threading.Event(), threading.Event()
    with FileLog.open(tmp_path / "log") as log:

        def hold() -> None:
            with log._turns:
                held.set()
                done.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        child = os.fork()
        if not child:
            signal.alarm(20)  # ends a child that waits
            try:
                log.flush()
            except LogClosed:
                os._exit(7)
            os._exit(8)
        done.set()
        holder.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert log.append_records(["x"]) == (0, 0)


def dead_in_a_child(logs: Sequence[FileLog]) -> int:
    """How many of them refuse a call there."""
    child = os.fork()
    if not child:
        signal.alarm(20)
        dead = 0
        try:
            for log in logs:
                with suppress(LogClosed):
                    log.flush()
                    continue
                dead += 1
        finally:
            os._exit(dead)  # whatever is raised: a child that went on would run the tests that are left
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_in_a_child_every_log_is_dead_whatever_has_become_of_another_one(tmp_path: Path) -> None:
    def closing(frame: FrameType) -> bool:
        return frame.f_code.co_name == "close" and frame.f_code.co_filename.endswith("/log/open_files.py")

    broken, line, interrupted = [], 0, True
    while interrupted:
        line += 1
        log = FileLog.open(tmp_path / f"broken-{line}")
        log.append_records(["first"])
        broken.append(log)
        interrupted = interrupted_at(line, closing, log.close)
    assert line > 5
    logs = [FileLog.open(tmp_path / f"log-{number}") for number in range(8)]
    assert dead_in_a_child(logs) == len(logs)
    for log in logs:
        assert log.append_records(["x"]) == (0, 0)
        log.close()
    for log in broken:
        log._storage.files.die_in_child()  # finds no descriptor that is closed already
        log.close()


def test_what_fails_in_a_child_keeps_nothing_else_alive() -> None:
    class Fails:
        def die_in_child(self) -> None:
            raise OSError(ENOSPC, "full")

    failing = [Fails() for _ in range(8)]
    logs = [FileLog.open("/log", fs=MemoryFs()) for _ in range(8)]
    for one in failing:
        kill_in_child(one)
    assert dead_in_a_child(logs) == len(logs)


def test_the_logs_of_a_broker_pay_for_no_lock() -> None:
    from tests.unit.log.lives import open_log

    assert type(open_log(MemoryFs(), TopicConfig())[1]) is FileLog
    with Log.open("/log", fs=MemoryFs()) as log:
        assert type(log) is not FileLog
        assert isinstance(log, FileLog)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
def test_an_append_that_is_interrupted_is_stored_or_not_and_stays_so(segment_bytes: int) -> None:
    """At every line: what the log shows then is what is there when it is closed and opened again, and what comes next joins it."""
    line, ends, interrupted = 0, set(), True
    while interrupted:
        line += 1
        fs = MemoryFs()
        for goes_on in (False, True):
            path = f"/log-{goes_on}"
            with FileLog.open(path, fs=fs, config=TopicConfig(segment_bytes=segment_bytes)) as log:
                log.append_records(["first"])
                action = partial(log._append_next, RecordBatch(encode_records(["interrupted" * 3], now_ms=1)))
                interrupted = interrupted_at(line, lambda frame: frame.f_code.co_filename.endswith(_FILES), action)
                if goes_on:
                    log.append_records(["next"])
                shown = stored(log)
                assert list(shown) == list(range(log.end_offset))
                ends.add(log.end_offset - goes_on)
            with FileLog.open(path, fs=fs) as log:
                assert stored(log) == shown
                assert log.loss is not None
                assert log.loss.kind == "none"
                assert log.append_records(["last"])[0] == len(shown)
    assert ends == {1, 2}
    assert line > 15
