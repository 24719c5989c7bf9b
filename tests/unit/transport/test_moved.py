"""A broker that was replaced while it stood still: its connections are open, and nothing for its successor may go there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.transport.harness import Party, fetched, idle, settle

from replog import messages as m
from replog.testing.clock import ManualClock
from replog.transport.tcp.whereabouts import LOOK_MS, Whereabouts

Make = Callable[..., Party]


@pytest.mark.parametrize("who_dialed", ["we", "it", "both"])
def test_what_is_for_a_broker_goes_where_it_is_now(party: Make, clock: ManualClock, who_dialed: str) -> None:
    heartbeat = m.Heartbeat(1, 1, 1, 1)
    one, frozen = party(1), party(2)
    if who_dialed != "it":
        one.say(("controller", 2), heartbeat)
        settle([one, frozen], lambda: one.told("peer_connected") != [])
    if who_dialed != "we":
        frozen.say(("controller", 1), m.Heartbeat(2, 1, 1, 1))
        settle([one, frozen], lambda: frozen.told("peer_connected") != [])
    connections = one.open
    assert connections >= 1
    clock.advance(10_000)
    # From now on `frozen` does not run, but its kernel takes what comes.
    old = frozen.endpoint
    later = party(2)
    assert later.endpoint != old
    got: list[object] = []
    later.transport.listen(("controller", 2), lambda sender, message: got.append(message))
    one.say(("controller", 2), heartbeat)
    settle([one, later], lambda: heartbeat in got)
    assert 2 in one.lost
    idle([frozen], 2)
    assert heartbeat not in frozen.messages
    count = len(one.told("peer_disconnected"))
    one.say(("controller", 2), heartbeat)
    settle([one, later], lambda: got.count(heartbeat) == 2)
    assert len(one.told("peer_disconnected")) == count, "once is enough"


@pytest.mark.parametrize("how", ["news", "time", "woken"])
def test_who_waits_for_a_replaced_broker_hears_of_it_as_soon_as_this_process_may_know(party: Make, clock: ManualClock, how: str) -> None:
    """Nothing is said to it meanwhile: a fetch that waits there would wait until it is given up."""
    one, frozen, third = party(1), party(2), party(3)
    one.say(2, fetched(1))
    one.say(3, fetched(1))
    settle([one, frozen, third], lambda: bool(frozen.items) and bool(third.items))
    idle([one], 2)
    later = party(2)
    assert not one.lost
    if how == "news":
        third.transport.send(("controller", 3), 1, m.ReplicaStates(3, 1, 1, 1, []))
    elif how == "time":
        clock.advance(LOOK_MS)
    else:
        one.transport.wake()
    settle([one, third], lambda: one.lost == [2, ("controller", 2)])
    one.say(2, fetched(2))
    settle([one, later], lambda: later.messages == [fetched(2)])


def test_what_is_said_upon_the_news_goes_to_the_new_place(party: Make, clock: ManualClock) -> None:
    one, frozen, third = party(1), party(2), party(3)
    news = m.ReplicaStates(3, 1, 1, 1, [])
    one.say(2, fetched(1))
    third.transport.send(("controller", 3), 1, news)
    settle([one, frozen, third], lambda: bool(frozen.items) and bool(one.items))
    idle([one], 2)
    one.say(2, fetched(1))
    settle([one, frozen], lambda: len(frozen.items) == 2)
    later = party(2)
    third.transport.send(("controller", 3), 1, news)
    third.transport.flush()
    while one.messages != [news, news]:  # without a flush: nobody has looked yet
        one.transport.handle(one.transport.wait(0.01), clock.now_ms())
    one.say(2, fetched(2))
    settle([one, later], lambda: later.messages == [fetched(2)])


def test_routine_messages_are_not_preceded_by_a_look(party: Make, endpoints: dict[int, str]) -> None:
    one, two = party(1), party(2)
    looks: list[int] = []

    def endpoint_of(broker_id: int) -> str | None:
        looks.append(broker_id)
        return endpoints.get(broker_id)

    one.say(2, fetched(1))
    settle([one, two], lambda: len(two.items) == 1)
    idle([one], 2)
    one.transport._whereabouts = Whereabouts(endpoint_of)
    one.transport.handle([], one.transport._now_ms())  # the first turn looks
    one.transport.handle([], one.transport._now_ms())
    one.say(2, fetched(2))  # finds its way
    looks.clear()
    for number in range(20):
        one.say(2, fetched(number))
    settle([one, two], lambda: len(two.items) == 22)
    assert looks == []
    command = (("controller", 2), m.Heartbeat(1, 1, 1, 1))
    one.say(*command)
    settle([one, two], lambda: len(one.told("peer_connected")) == 2)
    looks.clear()
    one.say(*command)
    one.say(*command)
    assert looks == [2, 2], "a command is"


def test_whereabouts() -> None:
    known: dict[int, str] = {}
    where = Whereabouts(known.get)
    assert where.doubtful, "before the first turn nobody has looked"
    assert not where.has_moved(1), "nobody knows where it is"
    known[1] = "tcp://a:1"
    assert not where.has_moved(1), "the first look remembers"
    assert where.moved() == []
    known[1], known[2] = "tcp://a:2", "tcp://a:1"
    assert where.moved() == [1]
    assert where.moved() == []
    del known[1]
    assert where.moved() == [], "what is not known has not moved"
    known[1] = "tcp://a:1"
    assert where.has_moved(1)
    for after_ms, doubtful in [(0, True), (0, False), (LOOK_MS - 1, False), (LOOK_MS, True), (LOOK_MS + 1, False)]:
        where.turn(1_000 + after_ms)
        assert where.doubtful is doubtful
