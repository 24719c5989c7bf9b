"""Brokers over TCP and a store in a file: one that is stopped has what it leads moved first, on its thread or on another loop."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

import replog

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
