"""`BrokerProcess` before anything is started: what it refuses, and what it would run."""

from __future__ import annotations

from typing import Any

import pytest

import replog
from replog.errors import UsageError


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"broker_id": -1}, "-1"),
        ({"broker_id": True}, "True"),
        ({"store": object()}, "URL"),
        ({"store": "memory://"}, "another process can only open a URL"),
        ({"data": ""}, "data is ''"),
        ({"rack": "r\udcff"}, "rack 'r\\udcff' cannot be written in UTF-8"),
        ({"config": {"sesion_ms": 1}}, "did you mean 'session_ms'"),
        ({"config": {"session_ms": 1}}, "session_ms is 1"),
        ({"http": 8101}, "http is 8101; name a host and a port"),
        ({"http": "8101"}, "http is '8101'; name a host and a port"),
        ({"http": "http://127.0.0.1:1"}, "http is 'http://127.0.0.1:1'"),
    ],
)
def test_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        replog.BrokerProcess(**{"broker_id": 1, "data": "b1", "store": "file:///tmp/store.db", **arguments})
    assert says in str(refused.value)


def test_nothing_happens_before_start(tmp_path: Any) -> None:
    broker = replog.BrokerProcess(1, data=tmp_path / "b1", store=f"file://{tmp_path}/store.db", rack="-a", config={"session_ms": 1_000})
    assert not list(tmp_path.iterdir())
    assert not broker.is_running
    assert (broker.stop(), broker.last_lines, broker.endpoint) == (0, [], "")
    assert repr(broker) == "<BrokerProcess 1, not started>"
    for call in (broker.pause, broker.resume, broker.wait, lambda: broker.pid):
        with pytest.raises(UsageError):
            call()
    assert "--rack=-a" in broker._command
    assert "--config=session_ms=1000" in broker._command


def test_a_status_page_is_served_where_it_is_asked_for() -> None:
    def words(**arguments: Any) -> list[str]:
        return replog.BrokerProcess(1, data=None, store="file:///tmp/store.db", **arguments)._command

    assert "--http=[::1]:0" in words(http="[::1]:0")
    assert not any(word.startswith("--http") for word in words())


def test_in_memory() -> None:
    assert "--data=memory://" in replog.BrokerProcess(1, data=None, store="file:///tmp/store.db")._command
