"""The log lines of `replog broker`: time, level, and what happened in words a person can read."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from textwrap import indent
from typing import Any, Final, TextIO

from replog.cli.output import visible
from replog.cli.unread import Teller

__all__ = ["Lines", "telling"]

_AMBIGUOUS: Final = re.compile(r"[\s,='\"]")
"""What ends a field, or begins one, to whoever reads a line."""


class Lines(logging.Formatter):
    """`2026-11-22 12:00:00.123 WARNING replica failed: topic=orders, partition=0`.

    Events of brokers come as a name and a mapping of fields; everything else is a sentence already. Both may hold what others have said,
    such as the name of a writer: nothing of it ends the line, is obeyed by a terminal, or can be taken for another field.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line; an exception follows on lines of its own, which begin with a space as no other line does."""
        time = datetime.fromtimestamp(record.created).isoformat(" ", "milliseconds")
        text = f"{time} {record.levelname:<7} {_words(record)}"
        if record.exc_info:
            text += "\n" + indent(visible(self.formatException(record.exc_info), "\n\t"), "  ", lambda line: True)
        return text


def _words(record: logging.LogRecord) -> str:
    args = record.args
    if record.msg == "%s %s" and isinstance(args, tuple) and len(args) == 2 and isinstance(args[1], Mapping):
        fields = ", ".join(f"{key}={_plain(value)}" for key, value in args[1].items())
        return f"{str(args[0]).replace('_', ' ')}{': ' if fields else ''}{fields}"
    return visible(record.getMessage().replace("\n", " "))


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | list | set | frozenset):
        return f"[{' '.join(map(_plain, sorted(value, key=str) if isinstance(value, set | frozenset) else value))}]"
    text = str(value).replace("\n", " ")
    return text if text and text.isprintable() and not _AMBIGUOUS.search(text) else repr(text)


class _Handler(logging.Handler):
    """Gives each line to whoever writes it, and never waits for that."""

    def __init__(self, teller: Teller) -> None:
        super().__init__()
        self._teller = teller

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._teller.tell(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)


def _lost(lines: int) -> str:
    told = {"name": "replog", "levelno": logging.WARNING, "levelname": "WARNING"}
    what, them = ("1 line of this log is", "it") if lines == 1 else (f"{lines} lines of this log are", "them")
    words = f"{what} lost: stderr did not take {them}"
    return f"{Lines().format(logging.makeLogRecord({**told, 'msg': words}))}\n"


@contextlib.contextmanager
def telling(stream: TextIO, level: str) -> Iterator[Teller]:
    """Within it a stream is told what replog logs from `level` on; nobody waits for the stream, but for two seconds at its end.

    The audit log goes there whatever the level is: its lines are INFO, as they tell of what was done and of no trouble.
    """
    logger = logging.getLogger("replog")
    with Teller(stream, _lost) as teller:
        handler = _Handler(teller)
        handler.setFormatter(Lines())
        logger.addHandler(handler)
        logger.setLevel(level.upper())
        logging.getLogger("replog.audit").setLevel(logging.INFO)
        try:
            yield teller
        finally:
            logger.removeHandler(handler)
