"""What one target of the fuzzing is, and which version of its code was fuzzed."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from struct import Struct
from types import NoneType
from typing import Any, Final, NamedTuple

import replog
from replog.testing.simulator.versions import version_of

__all__ = ["Target", "file_of", "version"]

_ROOT: Final = Path(replog.__file__).parent
_CONSTANT: Final = re.compile(r"_?[A-Z][A-Z0-9_]*")
_PLAIN: Final = (bool, int, float, str, bytes, NoneType)


class Target(NamedTuple):
    """One decoder, or a few that the same bytes are for."""

    run: Callable[[bytes], object]
    """Returns if the bytes are refused with the error that the decoder declares, or accepted and the same again when they are encoded and
    decoded once more. Whatever else it raises is a finding."""
    seeds: Callable[[], Sequence[bytes]]
    """Valid bytes."""
    code: tuple[str, ...]
    """The modules whose functions it executes, `replog.` left out: its counts are of these. A test executes it, and finds no other."""
    seal: Callable[[bytearray], None] | None = None
    """Makes checksums and lengths right."""
    structured: Callable[[bytes, Random], bytes] | None = None
    """Of valid bytes others that can be read, with another value in them."""
    million: float = 5.0
    """So many mutants are wanted of one version of its code."""


def file_of(module: str) -> Path:
    """The source of a module, `replog.` left out."""
    place = _ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def version(code: tuple[str, ...]) -> str:
    """Of these modules: of their sources, but for comments and docstrings, and of the limits that they import from other modules."""
    sources = {module: file_of(module).read_text(encoding="utf-8") for module in sorted(code)}
    limits = {line for source in sources.values() for line in _imported(source, code)}
    return version_of([*sources.items(), ("limits", "\n".join(sorted(limits)))])


def _imported(source: str, code: tuple[str, ...]) -> Iterator[str]:
    """Assignments of the constants that a module imports of modules of replog that are not in `code`."""
    for one in ast.walk(ast.parse(source)):
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("replog.") and one.module.removeprefix("replog.") not in code:
            for name in (alias.name for alias in one.names if _CONSTANT.fullmatch(alias.name)):
                yield f"{one.module}.{name} = {spelled(getattr(importlib.import_module(one.module), name))}"


def spelled(value: Any) -> str:
    """A constant as Python that says its value. TypeError for what cannot be said so: then the module that has it belongs to the code."""
    if isinstance(value, tuple):
        return f"({' '.join(f'{spelled(one)},' for one in value)})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(spelled, value)))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{spelled(name)}: {spelled(one)}' for name, one in value.items())}}}"
    if isinstance(value, Struct):
        return spelled(value.format)
    if type(value) not in _PLAIN:
        raise TypeError(f"{value!r:.100} is not spelled")
    return repr(value)
