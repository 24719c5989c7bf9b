"""What the library says to Python programmers, in the words of the command line: options instead of arguments, no values of Python."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

__all__ = ["cannot", "nearest", "spoken"]

_WORDS: Final = (
    (re.compile(r"\bsay insecure=True"), "give --insecure"),
    (re.compile(r"\bgive security="), "give --security FILE"),
    (re.compile(r": advertise$"), ": --advertise"),
    (re.compile(r"\bexist_ok=True accepts it"), "--exist-ok accepts it"),
    (re.compile(r"\bbroker_id is\b"), "--id is"),
    (re.compile(r'\bgive auth=\("digest", USER, PASSWORD\)'), "name a file of them: ?auth=FILE"),
    (re.compile(r"\bknown are memory://, "), "known are "),
    (re.compile(r" is an int, not "), " is a whole number, not "),
    (re.compile(r" is True or False, not "), " is true or false, not "),
    (re.compile(r", not (True|False|None)$"), lambda found: f", not '{found[1].lower()}'"),
    (re.compile(r"\[Errno -?\d+\] "), ""),
)


def spoken(text: str) -> str:
    """The text of an error, as a person at a terminal may be told it."""
    for python, words in _WORDS:
        text = python.sub(words, text)
    return text


def cannot(problem: OSError) -> str:
    """What could not be done with which file, without numbers that only a program knows."""
    why = problem.strerror or spoken(str(problem))
    return why if problem.filename is None else f"{problem.filename}: {why}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A question behind a name that nobody knows: whether the nearest known one was meant. Empty if none is near."""
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""

