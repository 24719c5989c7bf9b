"""A turn in which there is nothing to do costs next to nothing: each acknowledgement passes through several of them."""

from __future__ import annotations

from collections.abc import Callable
from select import EPOLLHUP, EPOLLIN
from types import SimpleNamespace
from typing import Any

import pytest
from tests.calling import called
from tests.unit.transport.harness import Party, fetched, piece, settle

from replog.messages import Unreached
from replog.testing.clock import ManualClock
from replog.transport.tcp.links import Link, LinkKey

Make = Callable[..., Party]


@pytest.fixture
def friends(party: Make) -> tuple[Party, Party]:
    """Two brokers with nothing more to say to each other."""
    one, two = party(1), party(2)
    two.say(1, fetched(1))
    settle([one, two], lambda: len(one.messages) == 1)
    for each in (one, two):
        each.transport.handle([], each.transport._now_ms())
    return one, two


def test_a_turn_without_news_is_a_handful_of_calls(friends: tuple[Party, Party], clock: ManualClock) -> None:
    transport, now_ms = friends[0].transport, clock.now_ms()
    assert called(lambda: transport.handle([], now_ms)) == ["TcpTransport.handle", "Inbox.deliver"]
    asked = called(transport.next_poll_ms)
    assert asked == ["TcpTransport.next_poll_ms", "Timers.next_ms"]


def test_a_frame_that_comes_whole_is_looked_at_once(friends: tuple[Party, Party], clock: ManualClock) -> None:
    """Neither whether it is whole, nor whether it is heard, costs a call."""
    one, two = friends
    two.say(1, fetched(2, piece(b"x" * 100)))
    two.transport.flush()
    names = called(lambda: one.transport.poll(1))
    assert len(one.messages) == 2
    assert [name for name in names if name.startswith(("Incoming.", "Connection."))] == ["Incoming.receive", "Incoming._begin"]
    assert "Whereabouts.turn" not in names


@pytest.mark.parametrize(("message", "pieces"), [(fetched(3), 1), (fetched(3, piece(b"x" * 100)), 1), (fetched(3, piece(b"x" * 3_000)), 2)])
def test_a_small_answer_is_written_as_one_piece(message: Any, pieces: int, friends: tuple[Party, Party]) -> None:
    one, two = friends
    assert "Connection.is_asked" not in called(lambda: two.say(1, message)), "of a broker nobody asks that"
    names = called(two.transport.flush)
    assert ("Outgoing._gather" in names) == (pieces > 1)
    settle([one, two], lambda: len(one.messages) == 2)


@pytest.mark.parametrize(("paused", "muted_ms", "kept"), [(p, m, k) for p in (False, True) for m in (-1, 5) for k in (b"", b"kept")])
@pytest.mark.parametrize("mask", [EPOLLIN, EPOLLIN | EPOLLHUP])
def test_who_is_read(
    paused: bool, muted_ms: int, kept: bytes, mask: int, friends: tuple[Party, Party], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody who is paused; who is muted only as long as something is kept. Of the others it is heard that they are gone."""
    connections: Any = friends[0].transport._connections
    [connection] = connections.open.values()
    done: list[str] = []
    monkeypatch.setattr(connections, "_read", lambda *_: done.append("read"))
    monkeypatch.setattr(connections, "end", lambda *_: done.append("ended"))
    connection.paused, connection.muted_ms, connection.incoming.kept = paused, muted_ms, kept
    connections.ready(connection.fd, mask, 0)
    connection.paused, connection.muted_ms, connection.incoming.kept = False, -1, b""
    is_read = not paused and (muted_ms < 0 or bool(kept))
    assert done == (["read"] if is_read else ["ended"] if mask & EPOLLHUP else [])


def _sees_work(transport: Any, what: str) -> None:
    connections, item = transport._connections, (1, 2, fetched(1))
    [connection] = connections.open.values()
    {
        "said": lambda: transport._inbox.brokers.append(item),
        "asked": lambda: transport._inbox.clients.append(item),
        "lost": lambda: transport._lost.waiting.setdefault(2, False),
        "left": lambda: transport._left.append((connection.fd, EPOLLIN)),
        "to dial": lambda: transport._dialer.wanted.setdefault(None, None),
        "unread": lambda: connections.unread.setdefault(connection.fd, None),
        "unwritten": lambda: connections.dirty.setdefault(connection, None),
        "to secure": lambda: connections.securing.setdefault(connection, None),
    }[what]()


@pytest.mark.parametrize("what", ["said", "asked", "lost", "left", "to dial", "unread", "unwritten", "to secure"])
def test_with_work_the_next_turn_comes_at_once(what: str, friends: tuple[Party, Party], clock: ManualClock) -> None:
    transport: Any = friends[0].transport
    before = transport.next_poll_ms()
    assert before is None or before > clock.now_ms()
    _sees_work(transport, what)
    assert transport.next_poll_ms() == clock.now_ms()
    transport._dialer.wanted.clear()


@pytest.mark.parametrize("who", ["nobody", "listener", "name", "refused", "all"])
def test_without_work_it_comes_when_the_first_is_due(who: str, friends: tuple[Party, Party], clock: ManualClock) -> None:
    transport: Any = friends[0].transport
    soonest, now_ms = transport.next_poll_ms(), clock.now_ms()
    due = {"nobody": soonest}
    if who in ("listener", "all"):
        due["listener"] = transport._listeners.by_fd[next(iter(transport._listeners.by_fd))].resume_ms = now_ms + 3
        transport._listeners.paused = True
    if who in ("name", "all"):
        due["name"] = now_ms + 2
        sought: Any = Link(LinkKey(1, 9, 0))
        sought.sought = SimpleNamespace(until_ms=now_ms + 2)
        transport._dialer.sought[sought] = None
    if who in ("refused", "all"):
        due["refused"] = now_ms + 1
        transport._door = SimpleNamespace(refusals=SimpleNamespace(next_ms=now_ms + 1), close=lambda: None)
    assert transport.next_poll_ms() == min(due.values())
    transport._dialer.sought.clear()


def test_who_had_asked_is_told_although_nobody_is_lost(friends: tuple[Party, Party], clock: ManualClock) -> None:
    """On one lane of several it had waited: an interrupt came when the rest was told."""
    one, question = friends[0], fetched(9)
    one.transport._lost.unsent.append((one.address, 2, question))
    one.transport.handle([], clock.now_ms())
    assert one.items[-1] == (None, Unreached(2, question))
