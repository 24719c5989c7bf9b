"""Which threads take flushes: one, or several while all logs are to be flushed; and where nobody may wait for them."""

from __future__ import annotations

import threading

import pytest

from replog.errors import UsageError
from replog.runtime import flush_lanes
from replog.runtime.flush_lanes import FlushLanes
from replog.runtime.workers import Workers

MANY = flush_lanes._LANES


def threads_of(lanes: FlushLanes, count: int, *, together: int = 1) -> list[str]:
    """Names of the threads that take so many flushes; each ends only when so many are under way."""
    taken: list[str] = []
    done = threading.Semaphore(0)
    all_there = threading.Barrier(together)

    def work() -> None:
        all_there.wait(20)
        taken.append(threading.current_thread().name)
        done.release()

    for _ in range(count):
        lanes.submit(work)
    for _ in range(count):
        assert done.acquire(timeout=20)
    return sorted(taken)


def test_one_thread_and_several_meanwhile() -> None:
    workers = Workers("test")
    lanes = FlushLanes(workers, "flush")
    assert threads_of(lanes, 3) == ["test flush"] * 3
    with lanes.spread():
        assert threads_of(lanes, MANY, together=MANY) == sorted(["test flush", *(f"test flush {number}" for number in range(2, MANY + 1))])
        with lanes.spread():  # two stop at once
            pass
        assert len(set(threads_of(lanes, MANY, together=MANY))) == MANY
    assert threads_of(lanes, 3) == ["test flush"] * 3
    workers.close()


def test_there_is_no_waiting_for_threads_that_were_ended() -> None:
    workers = Workers("test")
    lanes = FlushLanes(workers, "flush")
    workers.close()
    with pytest.raises(UsageError, match="ended"), lanes.spread():
        pass


def test_nor_on_one_of_them() -> None:
    workers = Workers("test")
    lanes = FlushLanes(workers, "flush")
    raised: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            with lanes.spread():
                pass
        except UsageError as problem:
            raised.append(problem)
        done.set()

    lanes.submit(work)
    assert done.wait(20)
    assert len(raised) == 1
    workers.close()


def test_one_that_takes_its_time_holds_up_only_its_own_lane() -> None:
    workers = Workers("test")
    lanes = FlushLanes(workers, "flush")
    gate = threading.Event()
    with lanes.spread():
        lanes.submit(lambda: None if gate.wait(20) else pytest.fail("nobody opened it"))
        assert len(threads_of(lanes, 5 * MANY)) == 5 * MANY
    gate.set()
    workers.close()


def test_what_no_thread_can_be_had_for_is_run_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has asked runs it."""
    workers = Workers("test")
    lanes = FlushLanes(workers, "flush")
    run: list[int] = []

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with lanes.spread():
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            with pytest.raises(RuntimeError, match="new thread"):
                lanes.submit(lambda: run.append(1))
        threads_of(lanes, 1)
    workers.close()
    assert run == []
