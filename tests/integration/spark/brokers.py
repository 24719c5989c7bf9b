"""Three brokers, each a process of its own, with topics of three copies. Those that a test kills run again for the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import replog
from replog.testing.eventually import eventually

LONG_MS = 30_000
"""A session that lasts on a machine with too much to do: a leader that changes loses what is only staged with it."""
SHORT_MS = 4_000
"""For tests that kill a broker, and wait until another one leads."""
COUNT = 3

Row = tuple[bytes | None, bytes | None]
"""Key and value."""


class Brokers:
    """Brokers 1 to 3 under a folder, and a client of theirs."""

    def __init__(self, folder: Path, session_ms: int) -> None:
        config = {"session_ms": session_ms, "heartbeat_ms": 400, "retry_backoff_ms": 20, "retry_backoff_ms_max": 200}
        store = f"file://{folder / 'store.db'}"
        self.processes = {n: replog.BrokerProcess(n, data=folder / f"b{n}", store=store, config=config) for n in range(1, COUNT + 1)}
        self._topics = 0

    def __enter__(self) -> Self:
        for process in self.processes.values():
            process.start()
        self.client = replog.connect([process.endpoint for process in self.processes.values()])
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.client.close()
        for process in self.processes.values():
            process.stop()

    @property
    def servers(self) -> str:
        """What `replog.bootstrap.servers` is: every broker that runs."""
        return ",".join(process.endpoint.removeprefix("tcp://") for process in self.processes.values() if process.is_running)

    @property
    def option(self) -> dict[str, str]:
        """The same as an option."""
        return {"replog.bootstrap.servers": self.servers}

    def topic(self, *, partitions: int = 3, **config: Any) -> str:
        """A new topic."""
        self._topics += 1
        name = f"topic-{self._topics}"
        self.client.create_topic(name, partitions=partitions, replication_factor=COUNT, min_isr=2, **config)
        return name

    def leader(self, topic: str, partition: int = 0) -> replog.BrokerProcess:
        """The process that leads a partition."""
        found = self.client.leader(topic, partition)
        assert found is not None
        return self.processes[found]

    def clear(self) -> None:
        """Delete every topic."""
        for topic in self.client.topics():
            self.client.delete_topic(topic)

    def whole(self) -> int:
        """Start again what was killed, and wait until all copies are in sync; returns how many were."""
        dead = [process for process in self.processes.values() if not process.is_running]
        for process in dead:
            process.start(timeout_s=120)
        eventually(lambda: len(self.client.describe_cluster().brokers) == COUNT and all(map(self._in_sync, self.client.topics())), 120)
        return len(dead)

    def _in_sync(self, topic: str) -> bool:
        return all(len(p.isr) == COUNT for p in self.client.describe(topic).partitions)

    def rows(self, topic: str) -> Counter[Row]:
        """Every row of a topic, and how often it is there."""
        return Counter((record.key, record.value) for record in self.client.read(topic, timeout_s=120))


def expected(numbers: Iterable[int], prefix: str = "row") -> Counter[Row]:
    """What `columns` makes of these ids, each once."""
    return Counter((b"k%d" % (n % 50), f"{prefix} {n}".encode()) for n in numbers)


def columns(prefix: str = "row") -> tuple[str, str]:
    """SQL of a key and a value, made of the column `id`."""
    return "concat('k', id % 50) as key", f"concat('{prefix} ', id) as value"


def differences(found: Counter[Row], wanted: Counter[Row]) -> dict[str, list[Row]]:
    """What is missing and what is too many, a few of each; nothing if the two are the same."""
    some = {"missing": sorted((wanted - found).elements())[:5], "too many": sorted((found - wanted).elements())[:5]}
    return {name: rows for name, rows in some.items() if rows}
