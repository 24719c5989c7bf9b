"""Whose a data folder is: the broker and the cluster that it was first used for, kept in it.

Opened under another number a folder would look like one with copies that nobody wants: they would be put away, and deleted after a
while. Opened for another cluster it would serve nothing. Whoever mistypes a number or a store must hear so before that.

A broker that was never let in, as a live one has its number, leaves a folder in which nothing is: that one any number may have.
"""

from __future__ import annotations

import os

from replog.errors import LogDamaged, LogFull, UsageError
from replog.log.checkpoint import read_plain, write_plain
from replog.log.files import OS
from replog.log.segmented import PASSING
from replog.log.shapes import OWNER

__all__ = ["Owner"]

_NAME = "owner"


class Owner:
    """The note in one folder."""

    def __init__(self, folder: str, broker_id: int) -> None:
        """Read it, or write it if there is none. Raises UsageError if the folder is another broker's, LogFull, LogDamaged."""
        self._folder = folder
        self._broker_id = broker_id
        self.cluster_id = ""
        """"" until its broker has been registered for the first time."""
        found = read_plain(OS, f"{folder}/{_NAME}", OWNER)
        if found is None:
            self._write("")
            return
        there, self.cluster_id = found
        if there != broker_id and not self.cluster_id and not _holds_copies(folder):
            self._write("")
        elif there != broker_id:
            raise UsageError(f"{folder} is the data folder of broker {there}; broker {broker_id} needs one of its own")

    def joined(self, cluster_id: str) -> None:
        """Its broker is registered in this cluster. Nothing is written twice; raises LogFull, LogDamaged."""
        if cluster_id and not self.cluster_id:
            self._write(cluster_id)
            self.cluster_id = cluster_id

    def _write(self, cluster_id: str) -> None:
        try:
            write_plain(OS, self._folder, _NAME, [self._broker_id, cluster_id])
        except OSError as problem:
            kind = LogFull if problem.errno in PASSING else LogDamaged
            raise kind(f"{self._folder}/{_NAME} cannot be written: {problem}") from problem


def _holds_copies(folder: str) -> bool:
    """Whether any partition was ever here."""
    return os.path.lexists(f"{folder}/catalogue") or any(
        os.path.isdir(there) and os.listdir(there) for there in (f"{folder}/logs", f"{folder}/quarantine")
    )
