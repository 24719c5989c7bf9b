"""A client that has said nothing for long: its first words arrive, also where nobody answers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import replog
from replog.client.fetching import SLICE_MS_MAX
from replog.runtime.connected import ConnectedDriver
from replog.testing.eventually import eventually
from replog.transport.tcp import TcpLimits

IDLE_MS = TcpLimits().idle_timeout_ms


class Skip:
    """How far the clock of clients is ahead."""

    ms = 0


@pytest.fixture
def skip(monkeypatch: pytest.MonkeyPatch) -> Skip:
    skip, real = Skip(), ConnectedDriver.now_ms
    monkeypatch.setattr(ConnectedDriver, "now_ms", lambda driver: real(driver) + skip.ms)
    return skip


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], replog.Broker]]:
    started: list[replog.Broker] = []

    def start(listen: str) -> replog.Broker:
        broker = replog.Broker(1, listen=listen, data=tmp_path / "data", store=f"file://{tmp_path}/store.db").start()
        started.append(broker)
        broker.wait_until_ready(timeout_s=30)
        return broker

    yield start
    for broker in started:
        broker.stop(controlled=False)


@pytest.mark.parametrize("silence_ms", [IDLE_MS // 2 + 1, IDLE_MS + 1])
@pytest.mark.parametrize("restarted", [False, True])
def test_the_first_words_after_a_silence(start: Callable[[str], replog.Broker], skip: Skip, silence_ms: int, restarted: bool) -> None:
    broker = start("tcp://127.0.0.1:0")
    endpoint = broker.endpoint
    with replog.connect(endpoint) as client, replog.connect(endpoint) as reader:
        client.create_topic("t")
        with client.producer(acks=0, linger_ms=0) as quiet, client.producer(idempotent=False, linger_ms=0) as loud:
            for producer in (quiet, loud):
                producer.send("t", "first", partition=0)
                producer.flush()
            eventually(lambda: reader.offset("t", 0, "latest") == 2)

            def silence() -> None:
                nonlocal broker
                skip.ms += silence_ms
                if restarted:
                    broker.stop()
                    broker = start(endpoint)
                    reader.append("t", 0, ["leads again"])

            silence()
            count = 3 if restarted else 2
            for _ in range(50):
                quiet.send("t", "nobody answers", partition=0)
            quiet.flush(timeout_s=30)
            eventually(lambda: reader.offset("t", 0, "latest") == count + 50)
            silence()
            loud.send("t", "once", partition=0).result(timeout_s=30)
            silence()
            values = [record.text() for record in client.fetch("t", 0, 0)]
            assert [values.count(text) for text in ("nobody answers", "once")] == [50, 1]


def test_no_request_waits_for_so_long_that_its_connection_counts_as_idle() -> None:
    assert 2 * SLICE_MS_MAX < IDLE_MS // 2
