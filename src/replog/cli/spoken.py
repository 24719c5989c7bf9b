"""What the library says to Python programmers, in the words of the command line: options instead of arguments, no values of Python."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from replog.errors import Code, Rejected, ReplogError, Unavailable

__all__ = ["cannot", "nearest", "next_step", "spoken"]

_WORDS: Final = (
    (re.compile(r"\bsay insecure=True"), "give --insecure"),
    (re.compile(r"\bgive security="), "give --security FILE"),
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


_STEPS: Final = {
    Code.LEADER_NOT_AVAILABLE: "replog explain {topic} says why",
    Code.NOT_ENOUGH_REPLICAS: "replog explain {topic} says who is missing, and why",
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "replog explain {topic} says who is missing, and why",
    Code.OFFSET_OUT_OF_RANGE: "replog topic describe {topic} says which offsets there are; --start earliest takes the first",
    Code.REASSIGNMENT_IN_PROGRESS: "replog reassign status shows it, replog reassign cancel takes it back",
    Code.NO_REASSIGNMENT_IN_PROGRESS: "replog reassign execute UNDO, with what execute --undo UNDO wrote, takes back what is done",
    Code.BROKER_ID_NOT_REGISTERED: "replog health says which brokers there are",
}
_UNPROVEN: Final = "--security FILE, or REPLOG_SECURITY, names the settings with the secret or the certificate that this cluster knows"
_UNREACHED: Final = "see whether a broker runs there; --bootstrap names others, --timeout waits for longer"


def next_step(problem: ReplogError, of: str = "") -> str:
    """What somebody at a terminal may do about what a command in the module `of` raised; empty where the problem says so itself."""
    if isinstance(problem, Unavailable) and "have not proven who you are" in str(problem):
        return _UNPROVEN
    if isinstance(problem, Unavailable):
        return {"broker": "", "stores": "see whether the store is up; --timeout waits for longer"}.get(of, _UNREACHED)
    if not isinstance(problem, Rejected):
        return ""
    if problem.code == Code.UNKNOWN_TOPIC_OR_PARTITION and problem.partition is None:
        return "replog topic list names the topics there are, replog topic create makes one"
    return _STEPS.get(problem.code, "").format(topic=problem.topic or "TOPIC")
