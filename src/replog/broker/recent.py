"""What changed in the last versions of the cluster, so that who asks is told that, and not everything that there is."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import takewhile
from typing import Final, Generic, TypeVar

__all__ = ["CHANGES_MAX", "Recent"]

Key = TypeVar("Key", bound=Hashable)

CHANGES_MAX: Final = 1_000
"""Of so many it is remembered when they changed last: who is further behind is shown everything."""


class Recent(Generic[Key]):
    """In which version something changed last, or went; as of the version `since`."""

    def __init__(self, since: int = -1) -> None:
        self._since = since
        """All that changed after this version is here."""
        self._versions: dict[Key, int] = {}
        """What changed last is behind."""

    def note(self, changed: Iterable[Key], version: int) -> None:
        """These have changed in `version`, which is none before the last one."""
        for key in changed:
            self._versions.pop(key, None)
            self._versions[key] = version
        while len(self._versions) > CHANGES_MAX:
            self._since = self._versions.pop(next(iter(self._versions)))

    def after(self, version: int) -> frozenset[Key] | None:
        """What changed after `version`; None if that is not known any more. It takes as many steps as there are such."""
        if version < self._since:
            return None
        return frozenset(key for key, _ in takewhile(lambda item: item[1] > version, reversed(self._versions.items())))
