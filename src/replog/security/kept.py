"""Secrets out of files, read again when a file has changed: one is changed without a restart, as certificates and rules are.

The files are looked at when a connection needs a secret, once a second at most. What cannot be used changes nothing: the secrets of before
stay, and it is logged without showing any.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from replog.errors import UsageError

__all__ = ["LOOK_S", "KeptSecrets"]

_log = logging.getLogger("replog")

LOOK_S: Final = 1.0

Given = Mapping[str, tuple[Any, ...]]
"""Identity -> secrets: bytes, or the path of a file each."""


class KeptSecrets(Mapping[str, tuple[bytes, ...]]):
    """Identity -> its secrets, as the files have them now. `read` makes them of what was given; its UsageError is raised here at first."""

    def __init__(
        self, given: Given, read: Callable[[Given], dict[str, tuple[bytes, ...]]], *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._given = {name: tuple(one if isinstance(one, bytes) else os.path.abspath(one) for one in some) for name, some in given.items()}
        self._read = read
        self._now_s = now_s
        self._looks = self._look()
        self._secrets = read(self._given)
        self._look_s = now_s() + LOOK_S
        self._told: object = None
        """What was logged last of files that cannot be used, and how they looked."""

    def __getitem__(self, name: str) -> tuple[bytes, ...]:
        if self._now_s() >= self._look_s:
            self._look_again()
        return self._secrets[name]

    def __iter__(self) -> Iterator[str]:
        """Identities never change, only their secrets."""
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def _look_again(self) -> None:
        self._look_s = self._now_s() + LOOK_S
        looks = self._look()
        if looks == self._looks:
            return
        try:
            found = self._read(self._given)
        except UsageError as problem:  # tried again with the next look: why may be gone, and the files as they are
            if self._told != (looks, str(problem)):
                _log.warning("secrets that have changed are not used, those of before are: %s", problem)
            self._told = looks, str(problem)
            return
        self._looks, self._told = looks, None
        changed = sorted(name for name, some in found.items() if some != self._secrets[name])
        self._secrets = found
        if changed:
            _log.info("changed secrets are used from now on: those of %s", ", ".join(changed))

    def _look(self) -> list[object]:
        looks: list[object] = []
        for path in (one for some in self._given.values() for one in some if not isinstance(one, bytes)):
            try:
                found = os.stat(path)
                looks.append((found.st_mtime_ns, found.st_ino, found.st_size, found.st_mode, found.st_uid))
            except OSError as problem:
                looks.append(problem.errno)
        return looks
