"""Three broker processes over a store file, for tests that end their lives or their sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.processes.onlooker import Onlooker
from tests.integration.processes.strangers import Stranger, fetch, values_of

import replog
from replog.model import PartitionId
from replog.testing.eventually import eventually

__all__ = ["ALL", "PATIENT_MS", "Life", "others"]

PATIENT_MS = 600_000
"""Longer than any test takes."""
ALL = (1, 2, 3)


def others(*brokers: int) -> tuple[int, ...]:
    return tuple(n for n in ALL if n not in brokers)


class Life:
    """Three broker processes, a client of them, and the store seen from outside."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config
        self.store_file = folder / "metadata.db"
        self.processes = {n: self.process(n) for n in ALL}
        self.topics = 0
        for one in self.processes.values():
            one.start()
        self.store = Onlooker(self.store_file)
        self.client = replog.connect([one.endpoint for one in self.processes.values()])

    def process(self, broker_id: int, *, data: str = "", listen: str = "tcp://127.0.0.1:0") -> replog.BrokerProcess:
        """One of them, or somebody else who takes himself for one."""
        folder = self.folder / (data or f"broker-{broker_id}")
        return replog.BrokerProcess(broker_id, listen=listen, data=folder, store=f"file://{self.store_file}", config=self.config)

    def again(self, broker_id: int) -> None:
        """Start one where it was, at once."""
        before = self.processes[broker_id]
        before.kill()
        self.processes[broker_id] = self.process(broker_id, listen=before.endpoint).start()

    def topic(self, *replicas: int, partitions: int = 1) -> str:
        """A new topic with a record, all of whose copies are in sync; the first of the brokers leads."""
        self.topics += 1
        name = f"t{self.topics}"
        self.client.create_topic(name, assignment=dict.fromkeys(range(partitions), replicas), min_isr=min(2, len(replicas)))
        self.client.append(name, 0, ["m0"])
        self.in_sync(name, replicas)
        return name

    def identity(self, topic: str) -> PartitionId:
        """Of its partition 0."""
        return PartitionId(bytes.fromhex(self.client.describe(topic).topic_id), 0, 0)

    def append_without(self, broker_id: int, topic: str, value: str) -> None:
        """By a client that has never heard of this broker, which stands still: another would wait for its answer."""
        with replog.connect([self.processes[n].endpoint for n in others(broker_id)]) as client:
            client.append(topic, 0, [value])

    def in_sync(self, topic: str, replicas: tuple[int, ...] = ALL) -> None:
        """Wait until all of these are."""

        def is_so() -> bool:
            state = self.store.state(topic)
            return state.leader is not None and set(state.isr) == set(replicas)

        eventually(is_so)

    def values_at(self, broker_id: int, topic: str) -> list[str]:
        """What a client reads from the copy of that broker."""
        with Stranger(self.processes[broker_id].endpoint).hello() as reader:
            reader.send(fetch(1, self.identity(topic)))
            return values_of(reader.read())

    def all_hold(self, topic: str, *values: str) -> None:
        """Wait until every copy shows these, and no more."""
        for broker_id in ALL:
            eventually(lambda: self.values_at(broker_id, topic) == list(values))  # noqa: B023

    def heal(self) -> None:
        """Everybody runs and is registered, whatever a test has left behind."""
        for broker_id, one in self.processes.items():
            if one.is_running:
                one.resume()
            else:
                self.again(broker_id)
        eventually(lambda: all(self.store.broker_epoch(n) >= 0 for n in ALL))
        eventually(lambda: [b.broker_id for b in self.client.describe_cluster().brokers if not b.fenced] == list(ALL))

    def close(self) -> None:
        self.client.close()
        self.store.close()
        for one in self.processes.values():
            one.kill()
