"""What a path and an operation must look like, whatever backend stores it.

A path is `/` followed by names joined with `/`: no empty name, none that is `.` or `..`, no control character. `/`
alone is the root: it always exists, holds no value, and can only be listed and watched (ZooKeeper's rules, narrowed).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from replog.errors import UsageError
from replog.ports import Check, Create, Delete, Op, Put

__all__ = [
    "PATH_CHARACTERS_MAX",
    "ROOT",
    "VALUE_BYTES_MAX",
    "check_ops",
    "check_path",
    "check_sequence",
    "name_of",
    "parent_of",
    "too_large",
]

ROOT: Final = "/"
PATH_CHARACTERS_MAX: Final = 1_024
VALUE_BYTES_MAX: Final = 64 * 1024 * 1024


def parent_of(path: str) -> str:
    """The path one level up: `/a` of `/a/b`, `/` of `/a`."""
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    """The last name of a path."""
    return path.rpartition("/")[2]


def check_path(path: object, *, root: bool = False) -> str:
    """The path if it is well formed, else UsageError; `/` only with `root`."""
    if not isinstance(path, str):
        raise UsageError(f"a store path is a str, not {path!r}")
    if path == ROOT and root:
        return path
    if not 2 <= len(path) <= PATH_CHARACTERS_MAX:
        raise UsageError(f"store path {path[:60]!r} has {len(path)} characters; allowed are 2 to {PATH_CHARACTERS_MAX}")
    if path[0] != "/":
        raise UsageError(f"store path {path!r} does not begin with '/'")
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise UsageError(f"store path {path!r} has a name {name!r}; names are not empty, '.' or '..'")
    if not path.isprintable() and any(c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\udfff" for c in path):
        raise UsageError(f"store path {path!r} has a control character or half a character")
    return path


def _check_version(op: Any, low: int) -> None:
    version = op.version
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < low):
        raise UsageError(f"{op!r}: a version is an int from {low}, or None")


def check_sequence(given: object, wanted: str) -> None:
    """UsageError, which says what is `wanted`, for what is no list: a single one, say."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise UsageError(f"{wanted}, not {given!r:.120}")


def check_ops(ops: Sequence[Op], ops_max: int) -> None:
    """UsageError unless it is a list, every operation is well formed and there are at most `ops_max`."""
    check_sequence(ops, "a transaction is a list of operations")
    if len(ops) > ops_max:
        raise UsageError(f"a transaction of {len(ops)} operations; allowed are {ops_max}")
    for op in ops:
        if not isinstance(op, Create | Put | Delete | Check):
            raise UsageError(f"not an operation of a transaction: {op!r}")
        check_path(op.path)
        if isinstance(op, Create | Put) and not isinstance(op.value, bytes):
            raise UsageError(f"{op.path}: a value is bytes, not {type(op.value).__name__}")
        if isinstance(op, Put | Delete):
            _check_version(op, 0)
        elif isinstance(op, Check):
            _check_version(op, -1)


def too_large(ops: Sequence[Op]) -> UsageError | None:
    """Why no store takes these well-formed operations; None if their values are not too large."""
    for op in ops:
        if isinstance(op, Create | Put) and len(op.value) > VALUE_BYTES_MAX:
            return UsageError(f"{op.path}: a value of {len(op.value)} bytes; allowed are {VALUE_BYTES_MAX}")
    return None
