"""Scenario files as text: comments tell the story, `> ` begins a command, the lines under it are what was seen.

To replay a file is to write it again with what is seen now. So a comparison of two texts is the whole test, and accepting
a change is writing the second text.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from replog.errors import UsageError

__all__ = ["difference", "replay"]

_COMMAND = "> "


def replay(text: str, perform: Callable[[str], list[str]]) -> str:
    """The file `text` as it is after performing its commands in order: everything kept but the lines below each command.

    A transcript ends at the next command, comment or blank line. UsageError of a command names its line.
    """
    lines: list[str] = []
    in_transcript = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(_COMMAND):
            lines.append(line)
            try:
                lines += perform(line.removeprefix(_COMMAND))
            except UsageError as error:
                raise UsageError(f"line {number}: {error}") from error
            in_transcript = True
        elif not line.strip() or line.startswith("#"):
            lines.append(line)
            in_transcript = False
        elif not in_transcript:
            raise UsageError(f"line {number}: {line!r} is neither a comment, nor a command, nor below one")
    return "".join(f"{line}\n" for line in lines)


def difference(name: str, expected: str, seen: str) -> str:
    """What differs, for people; empty if nothing does."""
    lines = difflib.unified_diff(expected.splitlines(), seen.splitlines(), f"{name}, expected", f"{name}, seen now", lineterm="", n=6)
    return "\n".join(lines)
