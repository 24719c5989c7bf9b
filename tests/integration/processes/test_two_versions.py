"""Brokers of two versions side by side: upgraded one after the other, under load, and the feature level raised in the end (KIP-584)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.processes.later import later_python
from tests.integration.processes.served import QUICK

import replog
from replog.errors import FeatureUpdateFailed, Unavailable
from replog.metadata import layout
from replog.runtime.urls import open_store
from replog.testing.eventually import eventually

pytestmark = pytest.mark.processes

WAIT_S = 60


class Upgrade:
    """Three brokers, each of this version or of a later one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"file://{folder}/store.db"
        self.later = later_python(folder)
        self.running: dict[int, replog.BrokerProcess] = {}

    def start(self, broker_id: int, *, later: bool = False) -> None:
        python = {"python": self.later} if later else {}
        data = self.folder / f"b{broker_id}"
        self.running[broker_id] = replog.BrokerProcess(broker_id, data=data, store=self.store, config=QUICK, **python).start()

    def restart(self, broker_id: int, *, later: bool) -> None:
        assert self.running.pop(broker_id).stop() == 0
        self.start(broker_id, later=later)

    def versions(self) -> list[int]:
        """Of the registrations, as stored."""
        with contextlib.closing(open_store(self.store, session_ms=10_000)) as session:
            values = [session.read(layout.broker_path(broker_id)) for broker_id in sorted(self.running)]
        return [int(value.value.split(b'"version":')[1][:1]) for value in values if value is not None]


class Load:
    """Appends numbers with acks=all, one after the other, until it is stopped."""

    def __init__(self, client: replog.Client) -> None:
        self.client = client
        self.confirmed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._append)
        self._problem: BaseException | None = None

    def _append(self) -> None:
        try:
            while not self._stop.is_set():
                self.client.append("orders", 0, [str(self.confirmed)], timeout_s=WAIT_S)
                self.confirmed += 1
        except BaseException as problem:  # told to whoever waits
            self._problem = problem

    def goes_on(self) -> None:
        """Wait until more has been confirmed."""
        enough = self.confirmed + 10
        eventually(lambda: self.confirmed >= enough or self._problem is not None, deadline_s=WAIT_S)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._problem is not None:
            raise self._problem


@pytest.fixture
def upgrade(tmp_path: Path) -> Iterator[Upgrade]:
    made = Upgrade(tmp_path)
    try:
        yield made
    finally:
        for broker in made.running.values():
            broker.kill()


def in_sync(client: replog.Client) -> None:
    eventually(lambda: client.describe("orders", timeout_s=WAIT_S).partitions[0].isr == (1, 2, 3), deadline_s=WAIT_S)


def test_a_cluster_is_upgraded_under_load_and_its_level_raised_last(upgrade: Upgrade) -> None:
    for broker_id in (1, 2, 3):
        upgrade.start(broker_id)
    endpoints = [broker.endpoint for broker in upgrade.running.values()]
    with replog.connect(endpoints) as client, replog.connect(endpoints) as writer:
        client.create_topic("orders", assignment={0: [1, 2, 3]}, min_isr=2)
        with Load(writer) as load:
            for broker_id, later in ((1, True), (1, False), (1, True), (2, True), (3, True)):
                assert client.describe_features().highest == 1
                with pytest.raises(FeatureUpdateFailed, match=r"level 2 is not supported by broker [123] \(level 1\)"):
                    client.raise_feature_level(2)
                upgrade.restart(broker_id, later=later)
                load.goes_on()
                in_sync(client)
            assert client.describe_features().brokers == {1: (1, 2), 2: (1, 2), 3: (1, 2)}
            assert upgrade.versions() == [1, 1, 1], "nobody writes what this version cannot read"
            client.raise_feature_level(2)
            upgrade.restart(2, later=True)
            in_sync(client)
            assert upgrade.versions() == [1, 2, 1]
            assert upgrade.running.pop(3).stop() == 0
            with pytest.raises(Unavailable, match="feature level 2; this version of replog supports level 1: start a newer version"):
                upgrade.start(3)
            upgrade.start(3, later=True)
            in_sync(client)
            load.goes_on()
        assert client.describe_features().level == 2
        assert [record.value for record in client.read("orders")] == [str(n).encode() for n in range(load.confirmed)]
