"""`replog completion bash|zsh`: a script that completes commands, verbs, options and their values, made from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from replog.cli.context import Context
from replog.cli.exits import OK
from replog.cli.overview import verbs_of

__all__ = ["SHELLS", "completion", "script"]

SHELLS: Final = ("bash", "zsh")

# Both shells share the tables: which words may follow a command, and which an option.
_TABLES: Final = """\
_replog_words() {{
    case "$1" in
{words}
    esac
}}

_replog_values() {{
    case "$1 $2" in
{values}
    esac
}}

# The command of a line: the words that are commands, as far as they follow on each other.
_replog_command() {{
    local found="" word
    for word in "$@"; do
        [ -n "$(_replog_words "${{found:+$found }}$word")" ] && found="${{found:+$found }}$word"
    done
    printf '%s' "$found"
}}
"""
_BASH: Final = """\
# In ~/.bashrc:  source <(replog completion bash)
{tables}
_replog() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" path values
    path="$(_replog_command "${{COMP_WORDS[@]:1:COMP_CWORD-1}}")"
    values="$(_replog_values "$path" "${{COMP_WORDS[COMP_CWORD-1]}}")"
    COMPREPLY=($(compgen -W "${{values:-$(_replog_words "$path")}}" -- "$current"))
}}

complete -o default -F _replog replog
"""
_ZSH: Final = """\
#compdef replog
# In ~/.zshrc, behind compinit:  source <(replog completion zsh)
{tables}
_replog() {{
    local path_of values
    path_of="$(_replog_command "${{(@)words[2,CURRENT-1]}}")"
    values="$(_replog_values "$path_of" "${{words[CURRENT-1]}}")"
    compadd -- ${{=values:-$(_replog_words "$path_of")}} || _files
}}

compdef _replog replog
"""


def completion(context: Context) -> int:
    """The script, for the shell to read."""
    from replog.cli.grammar import make_parser

    text = script(make_parser(), context.arguments.shell)
    if context.output.is_json:
        context.output.json({"shell": context.arguments.shell, "script": text})
    else:
        context.output.data(text.encode())
    return OK


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for one of SHELLS."""
    words, values = [], []
    for path, one in _commands(parser):
        options = [name for name in one._option_string_actions if name.startswith("--")]
        words.append(f"        {_quoted(path)}) echo {_quoted(' '.join([*verbs_of(one), *options]))} ;;")
        for action in one._actions:
            if action.choices is not None and action.option_strings:
                said = " ".join(map(str, action.choices))
                values += [f"        {_quoted(f'{path} {name}')}) echo {_quoted(said)} ;;" for name in action.option_strings]
            elif action.choices is not None and not verbs_of(one):
                words[-1] = words[-1].replace("echo '", f"echo '{' '.join(map(str, action.choices))} ", 1)
    tables = _TABLES.format(words="\n".join(words), values="\n".join(values))
    return {"bash": _BASH, "zsh": _ZSH}[shell].format(tables=tables)


def _commands(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command and what it is called, the one without a name first."""
    yield path, parser
    for name, one in verbs_of(parser).items():
        yield from _commands(one, f"{path} {name}".strip())


def _quoted(text: str) -> str:
    return f"'{text}'"
