"""PySyncObj as a peer: a list that three processes replicate by Raft. The process that measures holds the leader.

Run as a program, with its own address and those of the others, this is one of the other two.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.measuring import times_of
from benchmarks.peers.servers import NODES, PATIENCE_S, Needs, Servers, free_ports

__all__ = ["NEEDS", "WINDOW", "ReplicatedList", "pysyncobj_nodes"]

NEEDS = Needs(module="pysyncobj", pypi="pysyncobj")
WINDOW = 2000
"""Appends that wait for an acknowledgement at a time; more do not make it faster."""
_TICK_S = 0.005  # by default 0.05 and 0.1, with which ten appends a second are acknowledged one after the other
_BATCH_BYTES = 1 << 20
_COMMANDS = 1_000_000
_NEVER = 10**8
_LEADER_ELECTION_S = (0.4, 0.6)
_OTHER_ELECTION_S = (5.0, 7.0)  # so late that the process that measures is the leader
_ROOT = Path(__file__).resolve().parents[2]


class ReplicatedList:
    """The leader. Its thread goes on ticking while replog has its turn."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def append_each(self, value: bytes, count: int) -> list[float]:
        """Append it so often, each after the last one is acknowledged; returns the seconds that each took."""
        return times_of(lambda: self._entries.append(value, sync=True, timeout=PATIENCE_S), count)

    def append(self, values: Sequence[bytes]) -> None:
        """Append them, a window at a time; returns once all are acknowledged. Raises RuntimeError if one was not."""
        places = threading.Semaphore(WINDOW)
        failures = []

        def acknowledged(_: object, failure: int) -> None:
            if failure:
                failures.append(failure)
            places.release()

        for value in values:
            _take(places)
            self._entries.append(value, callback=acknowledged)
        for _ in range(WINDOW):
            _take(places)
        if failures:
            raise RuntimeError(f"pysyncobj: {len(failures)} of {len(values)} appends failed, first with reason {failures[0]}")


def _take(places: threading.Semaphore) -> None:
    if not places.acquire(timeout=PATIENCE_S):
        raise RuntimeError(f"pysyncobj has acknowledged nothing for {PATIENCE_S} s")


@contextmanager
def pysyncobj_nodes(folder: Path) -> Iterator[ReplicatedList]:
    """Three nodes, tuned: ticks and messages every 5 ms. Yields the list on the leader.

    The Raft log is in memory, and in no file: the library's default.
    """
    own, *others = [f"127.0.0.1:{port}" for port in free_ports(NODES)]
    with Servers(folder) as servers:
        for other in others:
            peers = [address for address in (own, *others) if address != other]
            servers.start(f"pysyncobj-{other[-5:]}", [sys.executable, "-m", "benchmarks.peers.pysyncobj", other, *peers], cwd=_ROOT)
        node, entries = _node(own, others, _LEADER_ELECTION_S)
        try:
            servers.eventually(lambda: node.isReady() and all(node.isNodeConnected(other) for other in node.otherNodes))
            servers.eventually(lambda: str(node.getStatus()["leader"]) == own)
            yield ReplicatedList(entries)
        finally:
            node.destroy_synchronous()


def _node(own: str, others: Sequence[str], election_s: tuple[float, float]) -> tuple[Any, Any]:
    """A node and its list."""
    pysyncobj = import_module("pysyncobj")
    entries = import_module("pysyncobj.batteries").ReplList()
    configuration = pysyncobj.SyncObjConf(
        autoTickPeriod=_TICK_S,
        appendEntriesPeriod=_TICK_S,
        appendEntriesBatchSizeBytes=_BATCH_BYTES,
        commandsQueueSize=_COMMANDS,
        connectionRetryTime=_LEADER_ELECTION_S[0],
        connectionTimeout=_OTHER_ELECTION_S[1],
        logCompactionMinEntries=_NEVER,
        logCompactionMinTime=_NEVER,
        raftMinTimeout=election_s[0],
        raftMaxTimeout=election_s[1],
    )
    return pysyncobj.SyncObj(own, list(others), configuration, consumers=[entries]), entries


if __name__ == "__main__":
    _node(sys.argv[1], sys.argv[2:], _OTHER_ELECTION_S)
    signal.pause()
