"""The log lines of `replog broker`: time, level, and what happened in words a person can read."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from textwrap import indent
from typing import Any, Final, TextIO

from replog.cli.output import quieten, visible

__all__ = ["Lines", "tell_on"]

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


class _Handler(logging.StreamHandler[TextIO]):
    """Where nobody listens any more, it falls silent: that is no reason for a broker to end badly."""

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            quieten(self.stream)
        else:
            super().handleError(record)


def tell_on(stream: TextIO, level: str) -> logging.Handler:
    """Send what replog logs from `level` on to a stream; returns the handler, to be removed again.

    The audit log goes there whatever the level is: its lines are INFO, as they tell of what was done and of no trouble.
    """
    handler = _Handler(stream)
    handler.setFormatter(Lines())
    logger = logging.getLogger("replog")
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logging.getLogger("replog.audit").setLevel(logging.INFO)
    return handler
