"""Broker processes, each behind a proxy that everybody else goes through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.chaos.links import Links
from tests.chaos.stores import StoreUnderTest
from tests.integration.processes.config import CONFIG
from tests.integration.zookeeper_server import free_ports

import replog

__all__ = ["Brokers"]

_LINES_TOLD: Final = 5


class Brokers:
    """Numbers 1 to `count`, where they listen and how they are reached."""

    def __init__(self, folder: Path, store: StoreUnderTest, links: Links, ports: dict[int, int], config: Mapping[str, Any]) -> None:
        self.store = store
        self.links = links
        self._folder = folder
        self._ports = ports
        self._config = config
        self.processes: dict[int, replog.BrokerProcess] = {}

    @classmethod
    @contextmanager
    def running(
        cls, folder: Path, store: StoreUnderTest, count: int, *, seed: int, config: Mapping[str, Any] = CONFIG
    ) -> Iterator[Brokers]:
        """All of them, until the block ends; then none, whatever state they are in."""
        ports = dict(zip(range(1, count + 1), free_ports(count), strict=True))
        with Links(ports, seed=seed) as links:
            brokers = cls(folder, store, links, ports, config)
            try:
                for broker in ports:
                    brokers.start(broker)
                yield brokers
            finally:
                for process in brokers.processes.values():
                    process.kill()

    @property
    def ids(self) -> list[int]:
        return list(self._ports)

    @property
    def bootstrap(self) -> str:
        """The proxies of all of them."""
        return ",".join(self.links.addresses.values())

    def check_alive(self) -> None:
        """Raises AssertionError for brokers that have ended although nobody ended them, with what they said last."""
        ended = {broker: process.last_lines[-_LINES_TOLD:] for broker, process in self.processes.items() if not process.is_running}
        assert not ended, f"brokers that ended by themselves, and what they said last: {ended}"

    def start(self, broker: int) -> None:
        """Start it where it was."""
        self.processes[broker] = replog.BrokerProcess(
            broker,
            listen=f"tcp://127.0.0.1:{self._ports[broker]}",
            advertise=self.links.addresses[broker],
            data=self._folder / f"broker-{broker}",
            store=self.store.url,
            config=self._config,
        ).start()
