"""Threads for work that blocks, also where there are no more of them."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

import replog
from replog.runtime.workers import Workers
from replog.testing.eventually import eventually


class Scarce:
    """Refuses the start of threads with these names, each once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.refused: list[str] = []
        start = threading.Thread.start

        def scarce(thread: threading.Thread) -> None:
            if thread.name in names and thread.name not in self.refused:
                self.refused.append(thread.name)
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", scarce)


def test_each_lane_in_order() -> None:
    workers, done, others = Workers("w"), [], []
    for number in range(100):
        workers.submit("a", lambda number=number: done.append(number))  # type: ignore[misc]
        workers.submit("b", lambda number=number: others.append(number))  # type: ignore[misc]
    workers.close()
    assert done == others == list(range(100))


def test_a_lane_without_a_thread_shares_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scarce = Scarce(monkeypatch, "w b")
    workers, done = Workers("w"), []
    for lane in "ab":
        for number in range(3):
            workers.submit(lane, lambda text=f"{lane}{number}": done.append(text))  # type: ignore[misc]
    workers.close()
    assert scarce.refused == ["w b"]
    assert done == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_signal_handler_closes_in_the_middle_of_a_call() -> None:
    """As `stop` in a handler that came into a `stop` of the same thread."""
    workers = Workers("test")
    workers.submit("a", lambda: None)

    def call() -> None:
        with workers._lock:
            workers.close()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_without_any_thread_it_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Scarce(monkeypatch, "w a")
    workers, done = Workers("w"), []
    with pytest.raises(RuntimeError, match="can't start new thread"):
        workers.submit("a", lambda: done.append(1))
    workers.submit("a", lambda: done.append(2))
    workers.close()
    assert done == [2]


@pytest.mark.parametrize("lane", ["store ('membership', 1)", "flush"])
def test_a_broker_short_of_one_thread_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str) -> None:
    scarce = Scarce(monkeypatch, f"replog broker 1 {lane}")
    with (
        replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "data", store=f"file://{tmp_path / 's.db'}") as broker,
        broker.wait_until_ready(timeout_s=60).client() as client,
    ):
        client.create_topic("t", replication_factor=1, flush="ack")
        assert client.append("t", 0, ["x"]).last_offset == 0
    assert len(scarce.refused) == 1


@pytest.mark.parametrize("name", ["replog broker 1 store", "replog broker 1"])
def test_a_broker_that_gets_no_thread_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def broker() -> replog.Broker:
        return replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "data", store=f"file://{tmp_path / 's.db'}")

    scarce = Scarce(monkeypatch, name)
    with pytest.raises(RuntimeError, match="can't start new thread"), broker():
        pass
    assert scarce.refused == [name]
    with broker() as again:
        again.wait_until_ready(timeout_s=60)


def test_a_session_that_gets_no_thread_gets_one_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scarce = Scarce(monkeypatch, "replog s.db")
    with replog.Broker(1, listen="tcp://127.0.0.1:0", data=tmp_path / "data", store=f"file://{tmp_path / 's.db'}") as broker:
        broker.wait_until_ready(timeout_s=60)
        eventually(lambda: [thread.name for thread in threading.enumerate()].count("replog s.db") == 1)
        assert scarce.refused == ["replog s.db"]
    assert "goes on after an error" not in caplog.text


class Refusing(logging.Handler):
    """Raises whatever it is given."""

    def emit(self, record: logging.LogRecord) -> None:
        raise SystemExit(record.getMessage())


@pytest.mark.parametrize("problem", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_lane_goes_on_whatever_its_work_or_a_logging_handler_raises(problem: type[BaseException]) -> None:
    workers, done, handler = Workers("w"), [], Refusing()

    def fail() -> None:
        raise problem

    logging.getLogger("replog").addHandler(handler)
    try:
        workers.submit("a", fail)
        workers.submit("a", lambda: done.append("next"))
        workers.close()
    finally:
        logging.getLogger("replog").removeHandler(handler)
    assert done == ["next"]


def test_a_thread_whose_start_was_interrupted_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        started.append(thread)
        raise KeyboardInterrupt

    workers, done = Workers("w"), []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            workers.submit("a", lambda: done.append("never"))
    started[0].join(20)
    assert not started[0].is_alive()
    workers.submit("a", lambda: done.append("next"))
    workers.close()
    assert done == ["next"]


def test_an_interrupt_that_comes_out_of_a_start_as_another_error_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came when the start had just let go of a lock, and what it unwinds through takes that amiss. Nor is it a lack of threads."""

    def interrupted(thread: threading.Thread) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    workers = Workers("w")
    workers.submit("a", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            workers.submit("b", lambda: None)
    workers.close()


def test_what_the_caller_handles_is_no_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands behind every error that is raised meanwhile."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers, done = Workers("w"), []
    workers.submit("a", lambda: None)
    monkeypatch.setattr(threading.Thread, "start", refused)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        workers.submit("b", lambda: done.append("shared"))
    workers.close()
    assert done == ["shared"]


def test_who_closes_after_an_interrupted_wait_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython takes a thread whose `join` was interrupted for one that has ended."""
    workers, go_on = Workers("w"), threading.Event()
    workers.submit("a", lambda: go_on.wait(20))  # type: ignore[arg-type, return-value]
    (lane,) = workers._begun
    with monkeypatch.context() as patch:
        patch.setattr(lane.thread, "is_alive", lambda: False)
        patch.setattr(lane.thread, "join", lambda timeout: None)
        closer = threading.Thread(target=workers.close, args=(20,))
        closer.start()
        closer.join(0.05)
        assert closer.is_alive()
        go_on.set()
        closer.join(20)
    assert not closer.is_alive()


def test_who_closes_once_more_waits_as_well() -> None:
    workers, go_on = Workers("w"), threading.Event()
    workers.submit("a", lambda: go_on.wait(20))  # type: ignore[arg-type, return-value]
    workers.close(0.01)
    (lane,) = workers._begun
    workers.close(0.01)  # idempotent, and not over
    assert workers._begun == [lane]
    assert lane.thread.is_alive()
    go_on.set()
    workers.close(20)
    assert not lane.thread.is_alive()
