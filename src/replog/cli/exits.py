"""What the exit status of a command says, and which error becomes which."""

from __future__ import annotations

from typing import Final

from replog.errors import Rejected, ReplogError, Unavailable, UsageError

__all__ = ["BAD", "EXITS", "INTERRUPTED", "OK", "REFUSED", "UNAVAILABLE", "UNREACHABLE", "USAGE", "exit_of"]

OK: Final = 0
BAD: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
UNAVAILABLE: Final = 4
INTERRUPTED: Final = 130

UNREACHABLE: Final = 2
"""Of `health` alone: it cannot tell (as monitoring plugins say it)."""

EXITS: Final = """\
exit status:
  0    done
  1    the answer is bad: damage was found, the cluster is not healthy, files
       cannot be read, stdout cannot be written (broker: it could not go on)
  2    the command is wrong, and nothing was done (health: nobody answers;
       produce: a line is no record, and those before it are stored)
  3    the cluster refused
  4    nobody answered in time: it may or may not have happened
  130  interrupted (demo: 128+N by signal N; broker: at once by a second one)
"""


def exit_of(problem: ReplogError) -> int:
    """The exit status that says what kind of error it was."""
    if isinstance(problem, UsageError):
        return USAGE
    if isinstance(problem, Rejected):
        return REFUSED
    return UNAVAILABLE if isinstance(problem, Unavailable) else BAD
