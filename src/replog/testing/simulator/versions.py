"""Which code a run has run: hashes over the syntax of its sources, without comments, docstrings and layout.

The protocol code is what a simulated run imports, followed from import to import in the sources themselves; so a transport, a
store or a command that no simulated run uses can come and change without a new count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import replog

__all__ = ["code_version", "protocol_modules", "simulator_files", "simulator_version", "version_of"]

_ENTRY: Final = "replog.testing.simulator.running"
"""Importing it imports all that a run uses."""
_SIMULATOR: Final = ("testing/clock.py", "testing/disk", "testing/simulator")
_DESCRIBE_ONLY: Final = ("__main__.py", "corpus.py", "double.py", "minimise.py", "soak.py", "tally.py", "versions.py")
"""Files of the simulator that decide nothing about a run."""
_ROOT: Final = Path(replog.__file__).parent


def version_of(files: Iterable[tuple[str, str]]) -> str:
    """A hash over (name, Python source) pairs that only a change of meaning changes; the same under every Python."""
    return _version_of((name, _spelled(ast.parse(text))) for name, text in files)


def code_version() -> str:
    """Of the protocol code: all that a simulated run executes of brokers, controllers, clients, logs and the store."""
    return _protocol()[1]


@cache
def simulator_version() -> str:
    """Of what decides which run a seed is."""
    files = sorted((file.relative_to(_ROOT).as_posix(), file) for file in simulator_files())
    return version_of((name, file.read_text(encoding="utf-8")) for name, file in files)


def simulator_files() -> list[Path]:
    """The sources that `simulator_version` is about."""
    files = [file for place in _SIMULATOR for file in ([_ROOT / place] if place.endswith(".py") else (_ROOT / place).rglob("*.py"))]
    return [file for file in files if file.name not in _DESCRIBE_ONLY]


def protocol_modules() -> tuple[str, ...]:
    """The modules of replog that a simulated run imports, sorted; but for `replog.testing`, and `replog` itself, a table of names."""
    return _protocol()[0]


@cache
def _protocol() -> tuple[tuple[str, ...], str]:
    """These modules, and the hash over them. Each source is parsed once for both, which is most of what that takes."""
    found: dict[str, tuple[str, str] | None] = {}
    to_do = [_ENTRY]
    while to_do:
        module = to_do.pop()
        if module in found:
            continue
        file = _file_of(module)
        assert file is not None, module
        tree = ast.parse(file.read_text(encoding="utf-8"))
        is_counted = module != "replog" and not f"{module}.".startswith("replog.testing.")
        found[module] = (file.relative_to(_ROOT).as_posix(), _spelled(tree)) if is_counted else None
        to_do += _imported(module, tree)
    counted = {module: spelled for module, spelled in found.items() if spelled is not None}
    return tuple(sorted(counted)), _version_of(sorted(counted.values()))


def _version_of(files: Iterable[tuple[str, str]]) -> str:
    digest = hashlib.sha256()
    for name, spelled in files:
        digest.update(f"{name}\n{spelled}\n".encode())
    return digest.hexdigest()[:12]


def _imported(module: str, tree: ast.Module) -> Iterator[str]:
    """What importing a module imports of replog at once, with the packages around it."""
    for statement in _statements(tree.body):
        names = [one.name for one in statement.names]
        if isinstance(statement, ast.ImportFrom):
            assert not statement.level, f"{module} imports by a relative name"
            names = [str(statement.module), *(f"{statement.module}.{name}" for name in names)]
        for name in names:
            if name.split(".")[0] == "replog":
                parts = name.split(".")
                yield from (one for n in range(1, len(parts) + 1) if _file_of(one := ".".join(parts[:n])) is not None)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that a module makes when it is imported: not those for type checkers, nor those within functions."""
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif isinstance(statement, ast.If) and not (isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING"):
            yield from _statements([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            handled = [one for handler in statement.handlers for one in handler.body]
            yield from _statements([*statement.body, *handled, *statement.orelse])


@cache
def _file_of(module: str) -> Path | None:
    """The source of a module of replog; None if there is no such module."""
    place = _ROOT.joinpath(*module.split(".")[1:])
    alone = place.with_name(f"{place.name}.py")
    return next((file for file in (place / "__init__.py", alone) if file.is_file()), None)


def _spelled(tree: ast.Module) -> str:
    words: list[str] = []
    _spell(tree, words)
    return "\n".join(words)


def _spell(node: Any, words: list[str]) -> None:
    """Add a syntax tree as words: empty fields are left out, because newer Pythons add some; so are strings that do nothing."""
    if isinstance(node, ast.AST):
        words.append(f"({type(node).__name__}")
        for name, value in ast.iter_fields(node):
            if value not in (None, []):
                words.append(name)
                _spell(value, words)
        words.append(")")
    elif isinstance(node, list):
        for one in node:
            if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)):
                _spell(one, words)
    else:
        words.append(repr(node))
