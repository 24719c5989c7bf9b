"""A stream that is not read, or cannot be written: whoever has something to tell goes on, and what is lost is counted."""

from __future__ import annotations

import errno
import fcntl
import io
import logging
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from replog.cli.told import telling
from replog.cli.unread import Teller
from replog.testing.eventually import eventually

SIZE = 4_096
LINE = "x" * 99 + "\n"


class Pipe:
    """The smallest there is, and full from the beginning."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        assert fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SIZE) == SIZE
        os.write(writer, b"-" * SIZE)
        self.stream = os.fdopen(writer, "w", encoding="utf-8")

    def read(self) -> str:
        """All of it, once it is closed at the other end."""
        self.stream.close()
        with open(self.reader, encoding="utf-8", closefd=False) as file:
            return file.read().lstrip("-")

    def read_on(self, until: str) -> str:
        text = ""
        while until not in text:
            assert select.select([self.reader], [], [], 5.0)[0], f"nothing comes after {text!r}"
            text += os.read(self.reader, 65_536).decode()
        return text.lstrip("-")


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    one = Pipe()
    yield one
    one.stream.close()
    os.close(one.reader)


def words(lost: int) -> str:
    return f"{lost} lost\n"


def test_what_waits_is_bounded_and_what_is_lost_is_told_by_the_next_line_that_is_written(pipe: Pipe) -> None:
    with Teller(pipe.stream, words, waiting_max=1_000) as teller:
        for _ in range(25):
            teller.tell(LINE)
        assert pipe.read_on(LINE * 10) == LINE * 10
        assert teller.flush()
        teller.tell("next\n")
        teller.tell("one more\n")
        assert pipe.read_on("one more\n") == "15 lost\nnext\none more\n"
    assert pipe.read() == ""


def test_what_is_lost_is_told_at_the_end_at_the_latest_and_the_reason_for_the_end_has_room(pipe: Pipe) -> None:
    teller = Teller(pipe.stream, words, waiting_max=1_000)
    for _ in range(12):
        teller.tell(LINE)
    teller.tell("why it ends\n", is_last=True)
    for _ in range(3):
        teller.tell(LINE)
    closing = threading.Thread(target=teller.close)
    closing.start()
    assert pipe.read_on("3 lost\n") == LINE * 10 + "2 lost\nwhy it ends\n3 lost\n"
    closing.join()
    teller.close()
    teller.tell("after the end\n")
    assert pipe.read() == ""


def test_the_end_does_not_wait_for_a_reader_that_stands_still(pipe: Pipe) -> None:
    teller = Teller(pipe.stream, words)
    teller.tell(LINE)
    assert not teller.flush()
    teller.close()
    assert os.read(pipe.reader, SIZE) == b"-" * SIZE
    assert pipe.read_on(LINE) == LINE


def test_a_reader_that_has_gone_ends_a_write_that_waits_and_the_rest_goes_nowhere() -> None:
    one = Pipe()
    with one.stream, Teller(one.stream, words, waiting_max=1_000) as teller:
        teller.tell(LINE)
        os.close(one.reader)
        for _ in range(50):
            teller.tell(LINE)
            assert teller.flush()
        print("whatever else is said there", file=one.stream, flush=True)


def test_a_file_that_does_not_wait_is_waited_for(pipe: Pipe) -> None:
    os.set_blocking(pipe.stream.fileno(), False)
    with Teller(pipe.stream, words) as teller:
        teller.tell(LINE * 100)
        assert not teller.flush()
        assert pipe.read_on(LINE * 100) == LINE * 100


class Full(io.StringIO):
    """A disk without room."""

    room = False

    def write(self, text: str) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_lines_that_a_full_disk_does_not_take_are_counted_as_well() -> None:
    full = Full()
    with Teller(full, words) as teller:
        for _ in range(3):
            teller.tell(LINE)
            assert teller.flush()
        teller.tell(LINE)
        assert teller.flush()
        full.room = True
        teller.tell(LINE)
        assert teller.flush()
    assert full.getvalue() == f"4 lost\n{LINE}"


def test_a_line_that_is_longer_than_all_that_may_wait_is_written_when_nothing_waits() -> None:
    stream = io.StringIO()
    with Teller(stream, words, waiting_max=10) as teller:
        teller.tell(LINE)
    assert stream.getvalue() == LINE


def test_words_that_the_encoding_of_stderr_does_not_have(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w", encoding="ascii", errors="backslashreplace") as stream, Teller(stream, words) as teller:
        teller.tell("größer\n")
    assert (tmp_path / "log").read_bytes() == b"gr\\xf6\\xdfer\n"


def test_a_collector_that_logs_in_the_middle_of_a_line_stops_nothing() -> None:
    """A destructor runs wherever an allocation is made, also in here."""
    stream = Full()

    def lost(count: int) -> str:
        teller.tell("in the middle\n")
        return words(count)

    with Teller(stream, lost) as teller:
        teller.tell(LINE)
        assert teller.flush()
        stream.room = True
        teller.tell("line\n")
    assert stream.getvalue() == "in the middle\n1 lost\nline\n"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    one, audit = logging.getLogger("replog"), logging.getLogger("replog.audit")
    before = one.level, audit.level
    yield one
    one.setLevel(before[0])
    audit.setLevel(before[1])


@pytest.mark.parametrize(("count", "says"), [(1, "1 line of this log is lost"), (2, "2 lines of this log are lost")])
def test_the_log_says_how_many_of_its_lines_are_lost(logger: logging.Logger, count: int, says: str) -> None:
    full: TextIO = Full()
    with telling(full, "error") as teller:
        handlers = len(logger.handlers)
        for n in range(count):
            logger.error("line %d", n)
        assert teller.flush()
        assert isinstance(full, Full)
        full.room = True
        logger.error("the next")
    assert len(logger.handlers) == handlers - 1
    first, second = full.getvalue().splitlines()
    assert first.endswith(f" WARNING {says}: stderr did not take {'it' if count == 1 else 'them'}")
    assert second.endswith(" ERROR   the next")
    eventually(lambda: not any(thread.name == "stderr" for thread in threading.enumerate()))
