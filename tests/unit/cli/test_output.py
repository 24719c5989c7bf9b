"""Tables with and without rich, closed pipes, and log lines that a person can read."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import select
import sys

import pytest
from tests.threads import in_thread

import replog
from replog.cli import main
from replog.cli.output import Output, OutputClosed, OutputFailed, json_value, quieten, visible
from replog.cli.told import Lines
from replog.testing.eventually import eventually

HEAD = ("name", "count", "ids")
ROWS = [("a [b]", 1, (1, 2)), ("ä", None, ())]


def table(*, pretty: bool) -> str:
    stdout = io.BytesIO()
    Output(stdout, io.StringIO(), pretty=pretty).table(HEAD, ROWS, "the title")
    return stdout.getvalue().decode()


def test_plain() -> None:
    assert table(pretty=False) == "the title\nname   count  ids\na [b]  1      1,2\nä      -      -\n"


def test_rich_shows_the_same() -> None:
    drawn = table(pretty=True)
    assert drawn != table(pretty=False)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", drawn)
    assert re.findall(r"[^\s│╭╮╰╯─├┤┼┬┴]+", bare) == table(pretty=False).split()


@pytest.mark.parametrize(("columns", "is_drawn"), [(80, True), (44, True), (43, False)])
def test_numbers_stay_whole_on_a_narrow_terminal(columns: int, is_drawn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is text is folded; where even so not all numbers fit, the table is a plain one."""
    monkeypatch.setenv("COLUMNS", str(columns))
    numbers = ["123456789", "987654321", "123450000"]
    stdout = io.BytesIO()
    Output(stdout, io.StringIO(), pretty=True).table(("topic", "start", "hw", "leo"), [("a-long-name-of-a-topic", *numbers)])
    told = stdout.getvalue().decode()
    assert ("│" in told) == is_drawn
    assert all(number in told for number in numbers)


def test_without_rich_a_terminal_gets_the_plain_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    assert table(pretty=True) == table(pretty=False)


def test_a_line_in_place_covers_the_one_before_it_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    stdout = io.BytesIO()
    output = Output(stdout, io.StringIO())
    for text in ("abcdef", "a"):
        output.live(text)
    for _ in range(2):
        output.end_live()
    assert stdout.getvalue() == b"\rabcd\ra   \n"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x1b[2Jb", "a\\u001b[2Jb"),
        ("a\nhealthy", "a\\nhealthy"),
        ("a\r\tb", "a\\r\\tb"),
        ("\x9b31m", "\\u009b31m"),
        ("\u202egpj", "\\u202egpj"),
        ("\u2028", "\\u2028"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("\ud800", "\\ud800"),
        ("ä\u3000日本", "ä\u3000日本"),
    ],
)
@pytest.mark.parametrize("pretty", [False, True])
def test_what_a_terminal_would_obey_is_seen_instead(text: str, seen: str, pretty: bool) -> None:
    stdout, stderr = io.BytesIO(), io.StringIO()
    output = Output(stdout, stderr, pretty=pretty)
    output.table(("name",), [(text,)], text)
    told = re.sub(r"\x1b\[[0-9;]*m", "", stdout.getvalue().decode())
    assert told.splitlines()[0] == seen
    assert (told.count(seen), text in told) == (2, text == seen)
    output.json(text)
    assert json.loads(stdout.getvalue().splitlines()[-1]) == text
    kept = seen.replace("\\n", "\n").replace("\\t", "\t")
    output.note(text)
    output.line(text)
    assert stderr.getvalue() == f"{kept}\n"
    assert stdout.getvalue().decode().endswith(f"{kept}\n")


def test_json_has_no_numbers_of_its_own() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Output(io.BytesIO(), io.StringIO()).json({"n": float("inf")})
    assert json_value('{"n": [1.5, 7]}') == {"n": [1.5, 7]}
    for text in ("NaN", "[-Infinity]", '{"n": 1e999}'):
        with pytest.raises(ValueError, match="no number that JSON can tell"):
            json_value(text)


class Gone(io.BytesIO):
    """A pipe whose reader has closed it."""

    def __init__(self, flushes: bool = False) -> None:
        super().__init__()
        self.flushes = flushes

    def write(self, data: object) -> int:
        if self.flushes:
            return 1
        raise BrokenPipeError

    def flush(self) -> None:
        if self.flushes:
            raise BrokenPipeError


@pytest.mark.parametrize("flushes", [False, True])
def test_a_closed_pipe_is_quiet(flushes: bool) -> None:
    stderr = io.StringIO()
    with replog.Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        cluster.append("t", 0, ["x"])
        assert main(["read", "t"], client=cluster, stdout=Gone(flushes), stderr=stderr) == 0
    assert stderr.getvalue() == ""
    with pytest.raises(OutputClosed):
        Output(Gone(), stderr).line("x")


def test_a_stdout_that_does_not_wait_is_waited_for() -> None:
    """The kernel's buffer is full before somebody begins to read: of many small writes, of one that is larger, and of what is flushed."""
    near, far = os.pipe()
    os.set_blocking(far, False)

    def read() -> bytes:
        eventually(lambda: not select.select([], [far], [], 0)[1])
        with open(near, "rb") as reader:
            return reader.read()

    reading, found = in_thread(read)
    small, large = [b"%d\n" % n for n in range(20_000)], bytes(range(256)) * 1_000
    with open(far, "wb") as stdout:
        output = Output(stdout, io.StringIO())
        for data in (*small, large, *small):
            output.data(data)
        output.flush()
    reading.join(60)
    assert [hash(one) for one in found] == [hash(b"".join((*small, large, *small)))]


class Reluctant(io.BytesIO):
    """It lets go of what it has only if there is room in a pipe."""

    def __init__(self, pipe: int) -> None:
        super().__init__()
        self.pipe, self.tries = pipe, 0

    def flush(self) -> None:
        self.tries += 1
        if not select.select([], [self.pipe], [], 0)[1]:
            raise BlockingIOError(11, "write could not complete without blocking", 0)


class Piped(Reluctant):
    """It is that pipe, to the system."""

    def fileno(self) -> int:
        return self.pipe


def test_what_is_flushed_is_waited_for_too() -> None:
    near, far = os.pipe()
    os.set_blocking(far, False)
    with open(near, "rb", buffering=0) as reader, open(far, "wb", buffering=0) as writer:
        while writer.write(bytes(1 << 16)) is not None:
            pass
        with pytest.raises(OutputFailed, match=r"stdout cannot be written: .* could not complete"):
            Output(Reluctant(far), io.StringIO()).flush()
        stdout = Piped(far)

        def read() -> None:
            eventually(lambda: stdout.tries > 0)
            reader.read(1 << 20)

        reading, _ = in_thread(read)
        Output(stdout, io.StringIO()).flush()
        reading.join(60)
    assert stdout.tries == 2, "it has waited, and not tried on and on"


def test_whoever_waits_for_room_hears_that_the_reader_has_gone() -> None:
    near, far = os.pipe()
    os.set_blocking(far, False)

    def leave() -> None:
        eventually(lambda: not select.select([], [far], [], 0)[1])
        os.close(near)

    leaving, _ = in_thread(leave)
    with open(far, "wb") as stdout:
        with pytest.raises(OutputClosed):
            Output(stdout, io.StringIO()).data(bytes(1 << 20))
        leaving.join(60)
        quieten(stdout)


def test_a_rest_ends_when_the_reader_has_gone() -> None:
    near, far = os.pipe()
    with open(far, "wb") as stdout:
        output = Output(stdout, io.StringIO())
        output.rest(0)
        resting, ended = in_thread(lambda: output.rest(600))
        os.close(near)
        resting.join(60)
        assert [type(one) for one in ended] == [OutputClosed]
        with pytest.raises(OutputClosed):
            output.rest(0)


def test_a_rest_without_a_reader_that_could_go_is_a_rest() -> None:
    Output(io.BytesIO(), io.StringIO()).rest(0.001)
    with open(os.devnull, "wb") as stdout:
        Output(stdout, io.StringIO()).rest(0.001)


class Full(Gone):
    """A file on a full disk."""

    def write(self, _data: object) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_one_line_and_status_1() -> None:
    stderr = io.StringIO()
    with replog.Cluster(brokers=1) as cluster:
        assert main(["topic", "list", "--format", "json"], client=cluster, stdout=Full(), stderr=stderr) == 1
    assert stderr.getvalue() == "replog: stdout cannot be written: No space left on device\n"


def test_names_that_are_no_text_go_out_as_they_came() -> None:
    stdout = io.BytesIO()
    output = Output(stdout, io.StringIO())
    output.line("a\udcffb")
    output.json({"file": "a\udcffb"})
    assert stdout.getvalue() == b'a\xffb\n{"file": "a\\udcffb"}\n'


def said(message: str, *arguments: object, problem: BaseException | None = None) -> str:
    exc_info = None if problem is None else (type(problem), problem, None)
    record = logging.LogRecord("replog", logging.WARNING, "x.py", 1, message, arguments, exc_info)
    record.created = 0.25
    return Lines().format(record).split(" ", 2)[2]


@pytest.mark.parametrize(
    ("message", "arguments", "text"),
    [
        ("%s %s", ("replica_failed", {"topic": "t", "partition": 0}), "WARNING replica failed: topic=t, partition=0"),
        ("%s %s", ("started", {}), "WARNING started"),
        ("%s %s", ("x", {"why": "a b", "ids": (1, 2), "set": {2, 1}}), "WARNING x: why='a b', ids=[1 2], set=[1 2]"),
        ("%s %s", ("x", {"id": b"\x01", "no": ""}), "WARNING x: id=01, no=''"),
        ("%s %s", ("x", {"why": "a\nb"}), "WARNING x: why='a b'"),
        ("broker %d waits", (3,), "WARNING broker 3 waits"),
        ("two\nlines", (), "WARNING two lines"),
    ],
)
def test_log_lines(message: str, arguments: tuple[object, ...], text: str) -> None:
    assert said(message, *arguments) == text


FORGED = "\r2026-11-27\xa012:00:00.000\xa0INFO\xa0principal=admin/anna\xa0outcome=ok\x1b[K\x1b]0;owned\x07\x85x"
"""The key of a writer, as a client may choose it."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (FORGED, repr(FORGED)),
        ([FORGED, 2], f"[{FORGED!r} 2]"),
        *((f"a{odd}b", repr(f"a{odd}b")) for odd in "\r\t\x0b\x1c\x1b\x07\x85\xa0\u2003\u2028\u202e\u3000 ,='\""),
        ("\udcff", r"'\udcff'"),
        ("tcp://[::1]:7101", "tcp://[::1]:7101"),
        ("job-1/0@ä", "job-1/0@ä"),
    ],
)
def test_a_field_can_be_taken_for_no_other_and_a_terminal_obeys_none(value: object, shown: str) -> None:
    assert said("%s %s", "mark_too_old", {"writer": value, "made_ms": 5}) == f"WARNING mark too old: writer={shown}, made_ms=5"


def test_a_sentence_with_text_of_others_is_one_line_that_a_terminal_only_shows() -> None:
    told = said("no session at the metadata store: %s", FORGED)
    assert told == f"WARNING no session at the metadata store: {visible(FORGED)}"
    assert len(told.splitlines()) == 1
    assert "\x1b" not in told


def test_no_line_of_an_exception_is_one_of_the_log() -> None:
    first, *more = said("it goes on", problem=ValueError(f"a\n2026-11-27 12:00:00.000 INFO    {FORGED}")).split("\n")
    assert first == "WARNING it goes on"
    assert more == ["  ValueError: a", f"  2026-11-27 12:00:00.000 INFO    {visible(FORGED)}"]


def test_an_exception_is_told_whole() -> None:
    assert said("it goes on", problem=ValueError("x")).splitlines() == ["WARNING it goes on", "  ValueError: x"]
