"""Brokers over TCP and a store in a file: one that is stopped has what it leads moved first, on its thread or on another loop."""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

import replog
from replog.broker.upkeep import Upkeep
from replog.log.directory import FileLogDirectory
from replog.metadata import layout
from replog.metadata.file import FileStore
from replog.runtime.loop import Loop
from replog.runtime.pump import Pump
from replog.runtime.store_sessions import StoreSessions
from replog.transport.tcp import TcpTransport

pytestmark = pytest.mark.processes


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message.split()[0] for record in caplog.records]


def test_it_moves_what_it_leads_before_it_stops(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="replog")
    store = f"file://{tmp_path}/metadata.db"
    with contextlib.ExitStack() as running:
        brokers = [replog.Broker(n, listen="tcp://127.0.0.1:0", data=None, store=store).start() for n in (1, 2, 3)]
        for broker in brokers:
            running.callback(broker.stop, controlled=False)
            broker.wait_until_ready()
        client = running.enter_context(replog.connect(",".join(broker.endpoint for broker in brokers)))
        client.create_topic("t", assignment={0: [2, 1, 3], 1: [3, 2, 1]}, min_isr=2)
        client.append("t", 0, ["before"])
        caplog.clear()
        brokers[1].stop()
        order = said(caplog)
        assert "broker_draining" in order
        assert order.index("broker_draining") < order.index("shutdown_granted")
        client.append("t", 0, ["after"])
        (first, second) = client.describe("t").partitions
        assert (first.leader, first.leader_epoch, first.isr) == (1, 1, (1, 3))
        assert (second.leader, second.leader_epoch, second.isr) == (3, 0, (3, 1))


def test_one_alone_may_go_at_once_also_on_a_loop_of_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="replog")
    broker = replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b", store=f"file://{tmp_path}/metadata.db")
    while not broker.is_ready:
        broker.poll(0.05)
    broker.stop()
    assert "shutdown_granted" in said(caplog)


STEPS = [
    (Loop, "stop"), (TcpTransport, "unserve"), (Pump, "unseat"), (Upkeep, "save"), (FileLogDirectory, "close"),
    (FileLogDirectory, "checkpoint"), (StoreSessions, "close"), (FileStore, "close"), (TcpTransport, "close"),
]  # fmt: skip


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """Have the next call of a function interrupted; the result says which were."""
    real, hit = getattr(owner, name), []

    def once(self: Any, *arguments: Any, **named: Any) -> Any:
        if not hit:
            hit.append(name)
            raise KeyboardInterrupt
        return real(self, *arguments, **named)

    monkeypatch.setattr(owner, name, once)
    return hit


@pytest.mark.parametrize(("owner", "name"), STEPS, ids=lambda step: step if isinstance(step, str) else step.__name__)
def test_a_stop_that_was_interrupted_is_finished_by_the_next(
    owner: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"file://{tmp_path}/metadata.db"

    def broker(endpoint: str) -> replog.Broker:
        return replog.Broker(1, listen=endpoint, data=tmp_path / "b", store=store, config={"shutdown_timeout_ms": 0})

    one = broker("tcp://127.0.0.1:0").start().wait_until_ready()
    monkeypatch.setattr(threading, "Thread", NoThread)  # the session is ended on this one, where the interrupt comes
    interrupt(monkeypatch, owner, name)
    with pytest.raises(KeyboardInterrupt):
        one.stop()
    one.stop()
    with FileStore(tmp_path / "metadata.db") as others:
        assert others.list(layout.BROKER_IDS) == []
    monkeypatch.undo()
    with broker(one.endpoint) as again:  # neither the folder nor the port is taken
        again.wait_until_ready()


class NoThread:
    def __init__(self, **_: Any) -> None:
        """Takes what a thread does."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_a_stop_that_was_interrupted_and_is_not_repeated_leaves_the_folder_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b", store=f"file://{tmp_path}/metadata.db")
    one.start().wait_until_ready()
    interrupt(monkeypatch, Upkeep, "save")
    with pytest.raises(KeyboardInterrupt):
        one.stop()
    with replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "b", store=f"file://{tmp_path}/metadata.db") as again:
        again.wait_until_ready()
