"""A broker that was replaced while it stood still: its connections are open, and nothing for its successor may go there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.transport.harness import Party, idle, settle

from replog import messages as m
from replog.testing.clock import ManualClock

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
