"""`replog` without a word, or `replog help`: the commands, grouped by what they are about, on one screen."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any, Final

from replog.cli.context import Context
from replog.cli.exits import OK

__all__ = ["COLUMNS", "GROUPS", "overview", "show", "verbs_of"]

COLUMNS: Final = 80
GROUPS: Final = {
    "cluster": ("demo", "broker", "cluster", "health", "controller", "top", "metrics"),
    "topics": ("topic", "explain", "reassign", "elect"),
    "records": ("produce", "read"),
    "files": ("log", "store"),
    "security": ("cert",),
    "shell": ("completion", "help"),
}
"""Which command is shown under which heading."""
_FIRST: Final = 9
_SECOND: Final = 12


def show(context: Context) -> int:
    """Say which commands there are."""
    from replog.cli.grammar import make_parser

    found = overview(make_parser())
    if context.output.is_json:
        context.output.json(found)
        return OK
    context.output.line("replog COMMAND [VERB] [options]")
    for group, commands in found.items():
        for at, (name, about) in enumerate(commands.items()):
            start = ("" if at else group).ljust(_FIRST) + name.ljust(_SECOND)
            text = ", ".join(about["verbs"]) if about["verbs"] and not about["alone"] else about["text"]
            lines = textwrap.wrap(start + text, COLUMNS - 1, subsequent_indent=" " * (_FIRST + _SECOND), break_on_hyphens=False)
            context.output.line("\n".join(lines))
    context.output.line("\nMore: replog COMMAND --help. Which cluster: --bootstrap or REPLOG_BOOTSTRAP.")
    return OK


def overview(parser: argparse.ArgumentParser) -> dict[str, dict[str, dict[str, Any]]]:
    """Heading -> command -> what it is for, its verbs, and whether it does something without one."""
    commands, texts = verbs_of(parser), _texts(parser)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for group, names in GROUPS.items():
        for name in names:
            alone = commands[name].get_default("run") is not None
            found.setdefault(group, {})[name] = {"text": texts[name], "verbs": list(verbs_of(commands[name])), "alone": alone}
    return found


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands behind a word, by name; none if it is the last word."""
    group = _group(parser)
    return {} if group is None else dict(group.choices)


def _texts(parser: argparse.ArgumentParser) -> dict[str, str]:
    group = _group(parser)
    return {} if group is None else {action.dest: action.help or "" for action in group._choices_actions}


def _group(parser: argparse.ArgumentParser) -> Any | None:
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
