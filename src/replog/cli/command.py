"""Running one command, and what becomes of what it raises."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import BinaryIO, TextIO

from replog.cli import arguments as parse
from replog.cli.context import Context
from replog.cli.exits import BAD, INTERRUPTED, OK, UNREACHABLE, exit_of
from replog.cli.grammar import check_broker, make_parser
from replog.cli.output import Output, OutputClosed, OutputFailed, buffered_stdout, quieten
from replog.cli.spoken import cannot, next_step, spoken
from replog.client.client import Client
from replog.errors import ReplogError

__all__ = ["main"]


def main(
    argv: Sequence[str] | None = None,
    *,
    client: Client | None = None,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Run one command and return its exit status. `client` is used instead of connecting, and stays its owner's.

    Without any word it says which commands there are.
    """
    parser = make_parser()
    try:
        asked = parser.parse_args((sys.argv[1:] if argv is None else argv) or ["help"])
        check_broker(asked)
        if hasattr(asked, "config"):
            asked.settings = parse.settings(asked.config, asked.parser)
    except SystemExit as end:  # --help, --version, or what argparse has refused
        return end.code if isinstance(end.code, int) else BAD
    with contextlib.ExitStack() as opened:  # in this order, so that a closed stream's number is no other file's
        given = stdin or (opened.enter_context(open(os.devnull, "rb")) if sys.stdin is None else sys.stdin.buffer)
        out = stdout or (opened.enter_context(open(os.devnull, "wb")) if sys.stdout is None else buffered_stdout())
        told = stderr or sys.stderr or opened.enter_context(open(os.devnull, "w", encoding="utf-8"))
        output = Output(out, told, asked.format, pretty=out.isatty())
        try:
            status = _run(asked.run, Context(asked, output, given, client))
            output.flush()
            return status
        except (OutputClosed, OutputFailed) as lost:
            if stdout is None:
                quieten(sys.stdout)
            if isinstance(lost, OutputClosed):
                return OK
            output.note(f"replog: {spoken(str(lost))}")
            return BAD


def _run(place: str, context: Context) -> int:
    """Run the command that `place` names ("module:function"); what it raises becomes a line on stderr and a status."""
    module, _, name = place.partition(":")
    try:
        command: Callable[[Context], int] = getattr(import_module(f"replog.cli.{module}"), name)
        return command(context)
    except ReplogError as problem:
        context.output.flush()
        context.output.note(f"replog: {spoken(str(problem))}{context.hint}")
        if step := next_step(problem, of=module):
            context.output.note(f"next: {step}")
        status = exit_of(problem)
        return UNREACHABLE if module == "health" and status > BAD else status
    except KeyboardInterrupt:
        context.output.flush()
        return INTERRUPTED
    except OSError as problem:  # files that cannot be read, a terminal that has gone
        context.output.note(f"replog: {cannot(problem)}")
        return BAD


