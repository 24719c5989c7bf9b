"""Brokers that tests reach over TCP: each a `Broker` on a thread of this process, all with one file store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import replog
from replog.runtime.node import Broker

QUICK = {"session_ms": 2_000, "heartbeat_ms": 200, "retry_backoff_ms": 20, "retry_backoff_ms_max": 200}


class Served:
    """Brokers 1 to n under a folder. Stopped ones can be started again, on whatever port is free."""

    def __init__(self, folder: Path, count: int = 3, *, name: str = "cluster") -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.count = count
        self.running: dict[int, Broker] = {}

    def start(self, broker_id: int, *, listen: str = "tcp://127.0.0.1:0") -> Broker:
        store = f"file://{self.folder / 'store.db'}"
        broker = Broker(broker_id, listen=listen, data=self.folder / f"b{broker_id}", store=store, config=QUICK)
        self.running[broker_id] = broker.start()
        return broker

    def stop(self, broker_id: int, *, controlled: bool = True) -> None:
        self.running.pop(broker_id).stop(controlled=controlled)

    @property
    def endpoints(self) -> list[str]:
        return [broker.endpoint for _, broker in sorted(self.running.items())]

    def connect(self, **config: Any) -> replog.Client:
        return replog.connect(self.endpoints, config=config)

    def __enter__(self) -> Served:
        for broker_id in range(1, self.count + 1):
            self.start(broker_id)
        for broker in self.running.values():
            broker.wait_until_ready()
        return self

    def __exit__(self, *problem: object) -> None:
        for broker_id in list(self.running):
            self.stop(broker_id)
