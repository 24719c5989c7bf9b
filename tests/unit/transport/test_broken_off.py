"""Ctrl-C at any line of what says something to a peer: it is said once and whole, or the connection ends and the owner is told."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType

import pytest
from tests.interrupts import at_every_line, interrupted_at
from tests.unit.transport.harness import Party, fetched, piece, settle

from replog.testing.eventually import eventually

Make = Callable[..., Party]
LARGE = 300_000


def saying(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_filename.endswith("tcp/outgoing.py"):
        return True
    return code.co_filename.endswith("tcp/connections.py") and code.co_name in ("send", "flush", "write", "select")


def said_in_spite_of_an_interrupt(line: int, one: Party, two: Party, sizes: tuple[int, ...], events: tuple[str, ...]) -> bool:
    """One broker says this to another, and is broken off at a line of it; whether it was."""
    one.say(2, fetched(0))
    settle([one, two], lambda: len(two.messages) == 1)
    (connection,) = one.transport._connections.open.values()

    def say() -> None:
        for number, size in enumerate(sizes, 1):
            one.say(2, fetched(number, piece(b"x" * size)))
        one.transport.flush()

    interrupted = interrupted_at(line, saying, say, events)
    settle([one, two], lambda: (connection.is_closed or not connection.outgoing.size) and not one.transport._connections.dirty)
    if connection.is_closed:
        eventually(lambda: bool(two.transport.wait(0)) or bool(two.told("peer_disconnected")))
        settle([one, two], lambda: bool(two.told("peer_disconnected")) and 2 in one.lost)
        assert one.transport._connections.output_held == 0
    else:
        one.say(2, fetched(9))
        settle([one, two], lambda: two.messages[-1].request == 9)
    heard = [message.request for message in two.messages][1:]
    assert heard == sorted(set(heard)), "nothing twice, and all in order"
    assert interrupted or heard == [*range(1, len(sizes) + 1), 9]
    assert {fields["reason"] for fields in two.told("peer_disconnected")} <= {"closed by the peer", "closed by the peer within a frame"}
    return interrupted


@pytest.mark.parametrize("events", [("line",), ("call",), ("return",)], ids=["at a line", "on entry", "on return"])
@pytest.mark.parametrize("sizes", [(10,), (10, 20, 30), (LARGE, 10, LARGE)], ids=["one", "several", "large"])
def test_what_is_broken_off_while_it_is_said_is_whole_or_ends_the_connection(
    party: Make, sizes: tuple[int, ...], events: tuple[str, ...]
) -> None:
    assert at_every_line(lambda line: said_in_spite_of_an_interrupt(line, party(1), party(2), sizes, events)) > 4
