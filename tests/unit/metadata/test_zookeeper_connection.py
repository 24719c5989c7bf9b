"""What kazoo's threads, sockets and times are bent to, as far as that needs no server."""

from __future__ import annotations

import errno
import os
import select
import threading
from typing import Any

import pytest

from replog.metadata.zookeeper import ZooKeeperStore
from replog.metadata.zookeeper import connection as module
from replog.metadata.zookeeper.wakeups import Wakeups
from replog.ports import UnknownOutcome
from replog.testing.eventually import eventually


def is_readable(wakeups: Wakeups) -> bool:
    return bool(select.select([wakeups], [], [], 0)[0])


def test_whoever_wakes_the_connection_thread_never_waits_for_it() -> None:
    wakeups = Wakeups()
    assert not is_readable(wakeups)
    for _ in range(10_000):
        assert wakeups.send(b"\0") == 1
    for _ in range(10_000):
        assert is_readable(wakeups)
        assert wakeups.recv(1) == b"\0"
    assert not is_readable(wakeups)
    with pytest.raises(BlockingIOError):
        wakeups.recv(1)
    wakeups.close()
    wakeups.close()
    for call in (lambda: wakeups.send(b"\0"), lambda: wakeups.recv(1)):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()


def test_a_wakeup_that_is_forgotten_leaves_no_descriptor() -> None:
    wakeups = Wakeups()
    number = wakeups.fileno()
    del wakeups
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


@pytest.mark.parametrize(
    ("session_ms", "servers", "connect_s"), [(9_000, 1, 3.0), (9_000, 3, 1.0), (6_000, 4, 0.5), (1_500, 3, 0.25), (100, 1, 0.1)]
)
def test_a_server_that_takes_no_connection_leaves_time_for_the_others(
    session_ms: int, servers: int, connect_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo gives the whole time of the session to each; and no more than that is given to any."""
    one, given = module._OneSession(session_ms, servers, None), list[Any]()
    monkeypatch.setattr(one.kazoo, "create_connection", lambda *a, **options: given.append(options["timeout"]))
    one.create_connection(address=("192.0.2.1", 2181), hostname="one", timeout=session_ms / 1_000)
    assert given == [connect_s]


def test_all_servers_of_an_address_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def refuse(*_: object, **options: Any) -> None:
        if options["address"][1] < 4:  # else it is what is left of another test
            given.append(options["timeout"])
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    monkeypatch.setattr(module.SequentialThreadingHandler, "create_connection", refuse)
    with pytest.raises(module.TimedOut):
        ZooKeeperStore("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", session_ms=9_000, timeout_s=0.05)
    assert set(given) == {1.0}


@pytest.mark.parametrize("at", [1, 2, 3])
def test_where_no_thread_can_be_had_a_session_is_an_unknown_outcome_and_nothing_is_left(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tries again needs each of them."""
    before, start, left = threading.active_count(), threading.Thread.start, [at]

    def refuse(self: threading.Thread) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise RuntimeError("can't start new thread")
        start(self)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(UnknownOutcome, match="can't start new thread"):
            ZooKeeperStore("127.0.0.1:1", session_ms=2_000, timeout_s=30)
    assert left == [0]
    eventually(lambda: threading.active_count() <= before)


def test_where_no_descriptor_can_be_had_a_session_is_an_unknown_outcome_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd", refuse)
        with pytest.raises(UnknownOutcome, match="Too many open files"):
            ZooKeeperStore("127.0.0.1:1", session_ms=2_000, timeout_s=30)
    eventually(lambda: threading.active_count() <= before)
