"""Files that decide who is let in, or what a broker believes: what others could read or change is refused before it is used."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from replog.errors import UsageError

__all__ = [
    "SECRET_BYTES_MIN", "check_folder", "check_own", "check_secret", "check_secret_file", "read_certificates", "read_credentials",
    "read_secret", "read_settings", "settings_from",
]  # fmt: skip

Made = TypeVar("Made")

SECRET_BYTES_MIN: Final = 32
"""Whoever connects may try to guess a secret without being seen: 32 characters of `openssl rand -hex 32` are beyond that."""
SECRET_BYTES_MAX: Final = 4_096
SETTINGS_BYTES_MAX: Final = 1 << 20


class _Access(NamedTuple):
    """What group and others may not have: the bits, in words, and the mode that mends it."""

    forbidden: int
    can: str
    chmod: str


_SECRET: Final = _Access(0o077, "read", "600")
_SETTINGS: Final = _Access(0o022, "change", "644")
_OWN: Final = _Access(0o077, "read or change", "600")
_FOLDER: Final = _Access(0o022, "change", "700")
_FOLDER_OF_ROOT: Final = _Access(0o002, "change", "o-w")


def read_secret(path: str) -> bytes:
    """The secret in a file, without the end of its line. UsageError if somebody else could read it, or it is too short."""
    return check_secret(_read(path, "the secret", _SECRET, SECRET_BYTES_MAX).strip(), f"the secret in {path}")


def read_credentials(path: str) -> tuple[str, str]:
    """The user and the password in a file of one line, USER:PASSWORD. UsageError, which shows neither, if it is none."""
    text = _read(path, "the credentials", _SECRET, SECRET_BYTES_MAX).decode("utf-8", "replace").strip()
    user, colon, password = text.partition(":")
    if not user or not colon or not password or "\n" in text:
        raise UsageError(f"the credentials {path!r} are no line USER:PASSWORD")
    return user, password


def check_secret(secret: bytes, what: str) -> bytes:
    """The secret. UsageError, which does not show it, if it is too short to be one or too long."""
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise UsageError(
            f"{what} has {len(secret)} bytes; allowed are {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}, such as `openssl rand -hex 32` makes"
        )
    return secret


def read_settings(path: str) -> str:
    """The text of a file of settings. UsageError if somebody else could change it."""
    try:
        return _read(path, "the file", _SETTINGS, SETTINGS_BYTES_MAX).decode()
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is no text: {problem}") from None


def read_certificates(path: str, what: str) -> str:
    """The text of a file in PEM, which anybody may read; what is no ASCII, as in names between certificates, is a question mark in it.

    UsageError if somebody else could change it: whoever adds an authority makes brokers.
    """
    return _read(path, what, _SETTINGS, SETTINGS_BYTES_MAX).decode("ascii", "replace").replace("\ufffd", "?")


def settings_from(path: str | os.PathLike[str], make: Callable[[dict[str, Any], str], Made]) -> Made:
    """What `make` makes of the tables in a TOML file of settings and its path. UsageError names the file and what is wrong with it."""
    import tomllib  # not for whoever has no such file

    name = os.fspath(path)
    text = read_settings(name)
    try:
        found = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:  # also of what is nested too deep, or a number too long
        raise UsageError(f"{name} is no TOML: {problem}") from None
    try:
        return make(found, name)
    except UsageError as problem:
        raise UsageError(f"{name}: {problem}") from None


def check_secret_file(path: str) -> None:
    """UsageError if somebody else could read it; for what others open by its name."""
    _read(path, "the key", _SECRET, SETTINGS_BYTES_MAX)


def check_own(path: str, what: str, these: str = "it") -> None:
    """UsageError if there is such a file, and it belongs to somebody else, or others could read or change it.

    `these` are the words for what is to be changed.
    """
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise UsageError(f"{what} {path!r} cannot be looked at: {problem.strerror}") from None
    _check_owner(found, path, what)
    _check_mode(found, path, what, _OWN, these)


def check_folder(path: str, what: str, *, is_own: bool = False) -> None:
    """UsageError if there is such a folder, and others could put something else in the place of what is in it.

    Where it need not be this user's or root's (`is_own`), the group may write to a folder of root that somebody else uses: that is how root
    gives it to a process, as Kubernetes does (`fsGroup`), and that process could not change its mode. An empty one of this user is closed
    to its group, for which `mkdir` makes it under many a umask: nothing is in it that somebody else could have put there.
    """
    try:
        found = os.stat(path)
        if found.st_mode & _FOLDER.forbidden == 0o020 and found.st_uid == os.geteuid() and not os.listdir(path):
            os.chmod(path, stat.S_IMODE(found.st_mode) & ~0o020)
            found = os.stat(path)
    except OSError:  # whoever opens it says why
        return
    if is_own:
        _check_owner(found, path, what)
    _check_mode(found, path, what, _FOLDER_OF_ROOT if found.st_uid == 0 != os.geteuid() and not is_own else _FOLDER)


def _check_owner(found: os.stat_result, path: str, what: str) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{what} {path!r} belongs to user {found.st_uid}; allowed are this user and root")


def _check_mode(found: os.stat_result, path: str, what: str, access: _Access, these: str = "it") -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & access.forbidden:
        raise UsageError(f"others can {access.can} {what} {path!r} (mode {mode:03o}); chmod {access.chmod} {these}")


def _read(path: str, what: str, access: _Access, bytes_max: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as problem:
        raise UsageError(f"{what} {path!r} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{what} {path!r} is no regular file")
        _check_owner(found, path, what)
        _check_mode(found, path, what, access)
        if found.st_size > bytes_max:
            raise UsageError(f"{what} {path!r} has {found.st_size} bytes; allowed are {bytes_max}")
        return os.read(fd, bytes_max)
    except OSError as problem:
        raise UsageError(f"{what} {path!r} cannot be read: {problem.strerror}") from None
    finally:
        os.close(fd)
