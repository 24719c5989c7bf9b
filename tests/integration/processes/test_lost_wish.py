"""A wish that gets lost between its client, a broker and the controller: whoever asked hears of it, and in what doubt it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.processes.served import Served
from tests.integration.zookeeper_server import free_ports
from tests.threads import in_thread

import replog
from replog.client.operations import AdminOp
from replog.errors import TopicAlreadyExists
from replog.testing.eventually import eventually
from replog.transport.tcp.lanes import CONTROL

PATIENT_MS = 600_000


def test_a_wish_that_is_lost_on_its_way_to_the_controller_is_granted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Served(tmp_path, 2) as served, served.connect(request_timeout_ms=PATIENT_MS, unanswered_ms=PATIENT_MS) as client:
        client.topics()
        controller = eventually(lambda: next((n for n, one in served.running.items() if one.is_controller), None))
        assert controller is not None
        forwarder = next(n for n in served.running if n != controller)
        passing, deciding = served.running[forwarder], served.running[controller]
        asked: list[Any] = []

        def target(op: AdminOp, core: Any, now_ms: int) -> int:
            asked.append(op.uncertain)
            return forwarder

        monkeypatch.setattr(AdminOp, "target", target)
        transport: Any = passing._transport

        def carries() -> list[Any]:
            return [one for one in transport._connections.open.values() if one.lane == CONTROL and one.peer_id == controller]

        eventually(carries)
        with deciding._pump.lock:  # it reads nothing
            passed_on = passing._pump._seats[forwarder].actor._forwarding._under_way  # type: ignore[attr-defined]
            thread, outcome = in_thread(lambda: client.create_topic("t"))
            eventually(lambda: bool(passed_on))
            with passing._pump.lock:
                for connection in carries():
                    transport._connections.end(connection, "test", abort=True)
            transport.wake()
            eventually(lambda: len(asked) > 1)
        thread.join(60)
        assert len(outcome) == 1
        assert not isinstance(outcome[0], BaseException), outcome
        assert client.topics() == ["t"]
        assert asked[:2] == [False, True]


def test_a_wish_that_found_nobody_at_an_address_was_not_granted_there(tmp_path: Path) -> None:
    """One that was perhaps granted, and is refused since the topic exists, would count as granted."""
    with Served(tmp_path, 1) as served:
        with served.connect() as client:
            client.create_topic("t")
        nobody = [f"tcp://127.0.0.1:{port}" for port in free_ports(3)]
        for _ in range(4):  # whom it asks first is drawn
            with replog.connect([*nobody, *served.endpoints]) as client, pytest.raises(TopicAlreadyExists, match="exist_ok=True"):
                client.create_topic("t")
