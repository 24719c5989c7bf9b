"""Secrets out of files, read again when a file has changed: one is changed without a restart, as certificates and rules are.

The files are looked at when a connection needs a secret, once a second at most; nothing that is logged shows any.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from replog.security.watched import Watched

__all__ = ["KeptSecrets"]

_log = logging.getLogger("replog")

Given = Mapping[str, tuple[Any, ...]]
"""Identity -> secrets: bytes, or the path of a file each."""


class KeptSecrets(Mapping[str, tuple[bytes, ...]]):
    """Identity -> its secrets, as the files have them now. `read` makes them of what was given; its UsageError is raised here at first."""

    def __init__(
        self, given: Given, read: Callable[[Given], dict[str, tuple[bytes, ...]]], *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._given = {name: tuple(one if isinstance(one, bytes) else os.path.abspath(one) for one in some) for name, some in given.items()}
        self._read = read
        self._secrets: dict[str, tuple[bytes, ...]] = {}
        paths = (one for some in self._given.values() for one in some if not isinstance(one, bytes))
        self._files = Watched(paths, self._anew, "secrets", now_s=now_s)

    def __getitem__(self, name: str) -> tuple[bytes, ...]:
        return self._files.now()[name]

    def __iter__(self) -> Iterator[str]:
        """Identities never change, only their secrets."""
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def _anew(self) -> dict[str, tuple[bytes, ...]]:
        found, before = self._read(self._given), self._secrets
        changed = sorted(name for name, some in found.items() if before and some != before[name])
        if changed:
            _log.info("changed secrets are used from now on: those of %s", ", ".join(changed))
        self._secrets = found
        return found
