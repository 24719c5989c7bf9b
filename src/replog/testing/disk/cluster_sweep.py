"""Damage to one of three replicas of a real cluster, byte by byte: nothing committed is lost, and it is available again.

In turn one broker is the victim, as follower, as leader, and as a leader that goes on running on its damaged files; or
the whole cluster is stopped cleanly in between. Whatever opening the damaged directory says, afterwards all three
copies are in sync and hold what was acknowledged. A directory that refuses to open is replaced by an empty one, as
its operator would.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, get_args

from attrs import define

import replog
from replog.errors import LogCorrupt, UsageError
from replog.log.log import FileLog
from replog.testing.disk.memory import MemoryFs
from replog.testing.disk.sweep import Injury, injuries
from replog.testing.disk.trial import Broken

__all__ = ["ClusterTally", "Role", "sweep_cluster"]

Role = Literal["follower", "leader", "running leader", "clean stop"]
_PER_CLUSTER: Final = 40
_IN_SYNC_S: Final = 30.0


@define
class ClusterTally:
    """How many injuries there were, and how many of them made a directory refuse to open."""

    injured: int = 0
    refused: int = 0

    def __str__(self) -> str:
        return f"{self.injured:,} injuries to one of three replicas ({self.refused:,} refused at opening): nothing committed lost"


def sweep_cluster(folder: Path, *, every: int = 1, offset: int = 0) -> ClusterTally:
    """One in `every` of the injuries, from `offset` on, each in one role. `folder` holds what is not a disk. Raises Broken."""
    tally = ClusterTally()
    roles: tuple[Role, ...] = get_args(Role)
    with _Patient(folder / "layout") as first:
        files = first.files()
    wanted = [(role, injury) for injury in injuries(files) for role in roles]
    wanted = wanted[offset % every :: every]
    for number in range(0, len(wanted), _PER_CLUSTER):
        with _Patient(folder / f"cluster-{number}") as patient:
            for role, injury in wanted[number : number + _PER_CLUSTER]:
                try:
                    tally.refused += patient.injure(role, injury)
                except Exception as problem:
                    raise Broken(f"{role}, {injury}: {problem!r}") from problem
                tally.injured += 1
    return tally


class _Patient:
    """A cluster of three brokers, each with a disk of its own in memory, and what it has acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made = 0
        self.disks = {broker: self._new_disk() for broker in (1, 2, 3)}
        self.acknowledged: list[str] = []
        self.cluster = self._opened()
        self.cluster.create_topic("t", assignment={0: [1, 2, 3]}, segment_bytes=400)
        for _ in range(8):
            self._append()
        self.cluster.close()  # so that there are checkpoints and indexes
        self.cluster = self._opened()
        self._append()

    def __enter__(self) -> _Patient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cluster.close()

    def _opened(self) -> replog.Cluster:
        return replog.Cluster(self.folder, brokers=3, _fs_of=lambda broker: self.disks[broker]).start()

    def _new_disk(self) -> MemoryFs:
        """An empty one. The randomness of these disks is a counter, and no two directories may have one id."""
        disk = MemoryFs()
        for _ in range(self._made):
            disk.random_bytes(16)
        self._made += 1
        return disk

    def files(self) -> dict[str, bytes]:
        """The files of one broker by their names."""
        disk = self.disks[1]
        return {path.rpartition("/")[2]: data for path, data in disk.snapshot().items()}

    def _append(self) -> None:
        value = f"value {len(self.acknowledged)}"
        self.cluster.append("t", 0, [value])
        self.acknowledged.append(value)

    def _check(self) -> None:
        found = [record.text() for record in self.cluster.read("t", partitions=[0])]
        if found != self.acknowledged:
            raise Broken(f"acknowledged were {len(self.acknowledged)} records, read are {found}")

    def injure(self, role: Role, injury: Injury) -> bool:
        """Damage one directory and see that all heals; whether that directory refused to open."""
        cluster = self.cluster
        leader = cluster.leader("t", 0)
        victim = leader if role != "follower" else leader % 3 + 1
        if role == "clean stop":
            cluster.close()
            self._damage(victim, injury)
            try:
                self.cluster = self._opened()
                refused = False
            except (LogCorrupt, UsageError):
                self.disks[victim] = self._new_disk()
                self.cluster, refused = self._opened(), True
        else:
            if role == "running leader":
                self._damage(victim, injury)
                self._forget_tails()
                self._check()
            cluster.kill_broker(victim)
            if role != "running leader":
                self._damage(victim, injury)
                self._check()  # two of three go on
            refused = self._start(victim)
        self.cluster.wait_until_in_sync(timeout_s=_IN_SYNC_S)
        self._append()
        self._forget_tails()
        self._check()
        self._heal(victim)
        return refused

    def _heal(self, victim: int) -> None:
        """Damage that nobody has come upon yet must not meet that of the next victim: a disk that has some is replaced."""
        bad = self._bad_copies()
        if bad not in ([], [victim]):
            raise Broken(f"the copies of {bad} are damaged, and only {victim} was")
        if bad:
            self.cluster.kill_broker(victim)
            self.disks[victim] = self._new_disk()
            self.cluster.start_broker(victim)
        self.cluster.wait_until_in_sync(timeout_s=_IN_SYNC_S)
        if self._bad_copies():
            raise Broken("a copy on a new disk is damaged")

    def _start(self, victim: int) -> bool:
        try:
            self.cluster.start_broker(victim)
        except (LogCorrupt, UsageError):
            self.disks[victim] = self._new_disk()
            self.cluster.start_broker(victim)
            return True
        return False

    def _damage(self, victim: int, injury: Injury) -> None:
        """The same name may be larger or smaller by now, or gone: then there is nothing to damage."""
        disk = self.disks[victim]
        for path in disk.paths():
            if path.rpartition("/")[2] == injury.path and disk.size(f"/{path}"):
                data = disk.content(path)
                position = injury.position % len(data)
                data[:] = Injury(path, position, injury.bit).applied({path: bytes(data)})[path]

    def _logs(self) -> Iterator[tuple[int, FileLog]]:
        for broker, running in self.cluster._embedded.running.items():
            directory = running.broker.directory
            for identity in directory.identities():
                log = directory.get(identity)
                if isinstance(log, FileLog):
                    yield broker, log

    def _forget_tails(self) -> None:
        with self.cluster._embedded.lock:
            for _, log in self._logs():
                log.forget_tail()

    def _bad_copies(self) -> list[int]:
        """Brokers whose copy is found to be corrupt when read. Raises Broken if one serves anything else than what was acknowledged."""
        bad = []
        with self.cluster._embedded.lock:
            for broker, log in self._logs():
                log.forget_tail()
                try:
                    values = [record.text() for record in log.records()]
                except LogCorrupt:
                    bad.append(broker)
                    continue
                if values != self.acknowledged:
                    raise Broken(f"broker {broker} holds {values}, acknowledged are {len(self.acknowledged)} records")
        return bad
