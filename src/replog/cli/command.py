"""Running one command, and what becomes of what it raises."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import BinaryIO, TextIO

from replog.cli import arguments as parse
from replog.cli.context import Context
from replog.cli.exits import BAD, INTERRUPTED, OK, UNREACHABLE, USAGE, exit_of
from replog.cli.grammar import Misspelt, check_broker, make_parser, wants_json
from replog.cli.output import Output, OutputClosed, OutputFailed, buffered_stdout, lost, quieten
from replog.cli.spoken import cannot, spoken
from replog.cli.steps import next_step
from replog.cli.units import Units
from replog.client.client import Client
from replog.errors import ReplogError, UsageError

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
    words = (sys.argv[1:] if argv is None else list(argv)) or ["help"]
    asked, wrong = argparse.Namespace(format="json" if wants_json(words) else "table", raw=False), None
    try:
        asked = parser.parse_args(words)
        check_broker(asked)
        if hasattr(asked, "config"):
            asked.settings = parse.settings(asked.config, asked.parser)
    except Misspelt as told:
        wrong = told
    except SystemExit as end:  # --help and --version
        return _told(end.code if isinstance(end.code, int) else BAD)
    except OSError as problem:
        return _not_told(problem, OK)
    with contextlib.ExitStack() as opened:  # in this order, so that a closed stream's number is no other file's
        given = stdin or (opened.enter_context(open(os.devnull, "rb")) if sys.stdin is None else sys.stdin.buffer)
        out = stdout or (opened.enter_context(open(os.devnull, "wb")) if sys.stdout is None else buffered_stdout())
        told_on = stderr or sys.stderr or opened.enter_context(open(os.devnull, "w", encoding="utf-8"))
        output = Output(out, told_on, asked.format, pretty=out.isatty(), units=Units(asked.raw))
        context = Context(asked, output, given, client)
        opened.enter_context(context.at_end)
        try:
            status = _run(asked.run, context) if wrong is None else _misspelt(context, wrong)
            output.flush()
            return status
        except (OutputClosed, OutputFailed) as end:
            if stdout is None:
                quieten(sys.stdout)
            if isinstance(end, OutputClosed):
                return context.failed
            output.note(f"replog: {spoken(str(end))}")
            return BAD


def _told(status: int) -> int:
    """The status of what the parser itself has written to stdout: BAD if that cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as problem:
        return _not_told(problem, status)
    return status


def _not_told(problem: OSError, status: int) -> int:
    quieten(sys.stdout)
    found = lost(problem)
    if isinstance(found, OutputClosed):
        return status
    with contextlib.suppress(OSError):
        print(f"replog: {spoken(str(found))}", file=sys.stderr, flush=True)
    return BAD


def _misspelt(context: Context, wrong: Misspelt) -> int:
    """What cannot be parsed; who typed it is told by then, and who reads JSON is not."""
    context.failed = USAGE
    if context.output.is_json:
        context.output.json({"error": UsageError.__name__, "why": wrong.why, "next": wrong.step, "status": USAGE})
    return USAGE


def _run(place: str, context: Context) -> int:
    """Run the command that `place` names ("module:function"); what it raises becomes a line on stderr and a status."""
    module, _, name = place.partition(":")
    try:
        command: Callable[[Context], int] = getattr(import_module(f"replog.cli.{module}"), name)
        return command(context)
    except ReplogError as problem:
        context.output.flush()
        status = exit_of(problem)
        status = UNREACHABLE if module == "health" and status > BAD else status
        step = next_step(problem, context.arguments, is_misspelt=bool(context.hint))
        return context.refuse(type(problem).__name__, f"{spoken(str(problem))}{context.hint}", status, step)
    except KeyboardInterrupt:
        context.output.flush()
        return INTERRUPTED
    except OSError as problem:  # files that cannot be read, a terminal that has gone
        return context.refuse(type(problem).__name__, cannot(problem), BAD)
