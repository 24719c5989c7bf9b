"""Where a command's answer goes: tables for people, JSON for programs, and nothing but data on stdout.

Tables are drawn by rich where it is installed and a person looks; their content is the same without it.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import select
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final, TextIO

from attrs import define, field

from replog.cli.units import Units

__all__ = ["Output", "OutputClosed", "OutputFailed", "aligned", "buffered_stdout", "json_value", "lost", "quieten", "shown_cell", "visible"]


_NUMBER: Final = re.compile(r"-|[0-9.,]+( [KMGTPE]iB)?")
_FOLDED: Final = 4
"""Columns that a column of text takes at least."""


class OutputClosed(Exception):
    """Whoever read stdout has gone (`replog read ... | head`): there is nobody left to tell anything."""


class OutputFailed(Exception):
    """Stdout cannot be written, and not because its reader has gone: a full disk, say. What the command found is lost."""


@define
class Output:
    """The two streams and the format. Text on stdout is UTF-8, whatever the locale."""

    stdout: BinaryIO
    stderr: TextIO
    format: str = "table"
    """"table" or "json"."""
    pretty: bool = False
    """A person looks at stdout."""
    units: Units = field(factory=Units)
    """How numbers of bytes and times are written for people."""
    tell: Callable[[str], None] | None = field(default=None, init=False)
    """Takes lines for people in place of stderr, behind what it was given before; None: they are written to stderr."""
    is_live: bool = field(default=False, init=False)
    """A line is on the screen that the next one is to take the place of."""

    @property
    def width(self) -> int:
        """Columns of the terminal that one line may take. The last one is left out: some terminals begin the next line there."""
        return max(shutil.get_terminal_size().columns - 1, 1)

    @property
    def height(self) -> int:
        """Lines of the terminal."""
        return shutil.get_terminal_size().lines

    def live(self, text: str) -> None:
        """A line in the place of the one before it, cut where the terminal ends. Raises OutputClosed or OutputFailed."""
        self.data(f"\r{visible(text)[: self.width].ljust(self.width)}".encode())
        self.is_live = True
        self.flush()

    def end_live(self) -> None:
        """Let the last of these lines stand, and go on below it."""
        if self.is_live:
            self.is_live = False
            self.line("")

    @property
    def is_json(self) -> bool:
        """Whether programs read this."""
        return self.format == "json"

    def data(self, data: bytes) -> None:
        """Bytes to stdout, as they are, once it takes them. Raises OutputClosed or OutputFailed."""
        while True:
            try:
                self.stdout.write(data)
            except BlockingIOError as full:
                self._await_room(full)
                data = data[full.characters_written :]
            except OSError as problem:
                raise lost(problem) from problem
            else:
                return

    def line(self, text: str) -> None:
        """A line to stdout, or some. What a terminal might obey is made visible; bytes of a file's name that are no UTF-8 stay."""
        self._print(visible(text, "\n\t"))

    def json(self, value: Any) -> None:
        """One JSON value, on one line. A number that JSON does not have is a mistake of ours."""
        text = visible(json.dumps(value, ensure_ascii=False, allow_nan=False))
        self._print(text.encode("utf-8", "backslashreplace").decode())

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
        """A table under its title."""
        cells = [[visible(shown_cell(cell)) for cell in row] for row in rows]
        drawn = _drawn_by_rich(head, cells) if self.pretty else None
        if title:
            self._print(visible(title))
        self._print(aligned(head, cells) if drawn is None else drawn)

    def _print(self, text: str) -> None:
        self.data(text.encode("utf-8", "surrogateescape") + b"\n")

    def passing(self, text: str) -> None:
        """A line on stderr in the place of the one before, without an end; an empty one takes it away."""
        text = visible(text)
        try:
            print(f"\r{text[: self.width].ljust(self.width)}\r{text[: self.width]}", end="", file=self.stderr, flush=True)
        except OSError:
            quieten(self.stderr)

    def note(self, text: str) -> None:
        """A line to stderr, for people; if nobody can be told there, nobody is."""
        line = visible(text, "\n\t")
        if self.tell is not None:
            self.tell(f"{line}\n")
            return
        try:
            print(line, file=self.stderr, flush=True)
        except OSError:
            quieten(self.stderr)

    def rest(self, seconds: float) -> None:
        """Wait before going on, for who seldom writes. OutputClosed as soon as whoever reads stdout has gone, where the system says it."""
        end_s = time.monotonic() + seconds
        with suppress(OSError, ValueError, AttributeError):  # no file of the system, or no poll
            poll = select.poll()
            poll.register(self.stdout.fileno(), 0)
            if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(int(seconds * 1_000))):
                raise OutputClosed
        threading.Event().wait(max(end_s - time.monotonic(), 0))

    def flush(self) -> None:
        """Let the reader of stdout have everything. Raises OutputClosed or OutputFailed."""
        while True:
            try:
                self.stdout.flush()
            except BlockingIOError as full:
                self._await_room(full)
            except OSError as problem:
                raise lost(problem) from problem
            else:
                return

    def _await_room(self, full: BlockingIOError) -> None:
        """Stdout is a file that does not wait (O_NONBLOCK), and full: wait in its place. Raises OutputFailed for what is no file of the
        system."""
        try:
            poll = select.poll()
            poll.register(self.stdout.fileno(), select.POLLOUT)
            poll.poll()
        except (OSError, ValueError, AttributeError):
            raise lost(full) from full


def visible(text: str, keep: str = "") -> str:
    """Text of others as a terminal may show it: what would move its cursor, colour it or turn its words around stands as JSON writes it.

    Also what is no character at all, but not the bytes of a file's name that are no UTF-8. `keep`: what else goes out as it is.
    """
    if text.isprintable():
        return text
    return "".join(one if one in keep or _is_harmless(one) else _ESCAPES.get(one) or _escaped(one) for one in text)


_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _is_harmless(one: str) -> bool:
    return one.isprintable() or unicodedata.category(one) == "Zs" or "\udc80" <= one <= "\udcff"


def _escaped(one: str) -> str:
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def json_value(text: bytes | str) -> Any:
    """What JSON says, as its standard has it. Raises ValueError for what it does not: NaN, and numbers that would be infinite."""
    return json.loads(text, parse_constant=_number, parse_float=_number)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no number that JSON can tell")
    return value


def lost(problem: OSError) -> OutputClosed | OutputFailed:
    """What it means that stdout does not take any more."""
    if isinstance(problem, BrokenPipeError):
        return OutputClosed()
    return OutputFailed(f"stdout cannot be written: {problem}")


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def buffered_stdout() -> BinaryIO:
    """Stdout in large pieces, also where PYTHONUNBUFFERED would make a system call of each record."""
    buffer: Any = sys.stdout.buffer
    return open(buffer.fileno(), "wb", closefd=False) if isinstance(buffer, io.RawIOBase) else buffer


def quieten(stream: Any) -> None:
    """Nobody reads stdout, or stderr, any more: what is still buffered goes nowhere, instead of into an error at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):  # it is no file: then nothing is flushed at exit either
        return


def shown_cell(cell: object) -> str:
    """A cell of a table as text: "-" for None and for nothing in a list."""
    if cell is None:
        return "-"
    if isinstance(cell, tuple | list):
        return ",".join(map(str, cell)) or "-"
    return str(cell)


def _drawn_by_rich(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """The table with lines and colours; None if rich is not there, or the terminal too narrow for numbers to stay whole."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    table = Table(box=box.ROUNDED, header_style="bold")
    wide, needed = max(Console().width, 40), 1
    for column, name in enumerate(head):
        cells = [row[column] for row in rows]
        is_number = all(_NUMBER.fullmatch(cell) for cell in cells)
        needed += 3 + max([_FOLDED, *(len(cell) for cell in cells if is_number)])
        table.add_column(name, overflow="fold", no_wrap=is_number, min_width=max(map(len, cells), default=0) if is_number else None)
    if needed > wide:
        return None
    for row in rows:
        table.add_row(*map(Text, row))
    drawn = io.StringIO()
    Console(file=drawn, force_terminal=True, width=wide).print(table)
    return drawn.getvalue().rstrip("\n")
