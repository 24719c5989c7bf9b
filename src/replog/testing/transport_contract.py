"""What every transport must do, as tests: subclass, make two ends that can reach each other, and run them.

A transport may drop, delay, repeat and reorder; the suite runs it where it does none of that, and asks only what holds
always: who receives, what, and what never raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from replog.errors import UsageError
from replog.messages import Fetched
from replog.model import Address
from replog.ports import Transport

__all__ = ["TransportContract"]


class Inbox:
    """What one address received."""

    def __init__(self) -> None:
        self.items: list[tuple[Address, Any]] = []

    def __call__(self, sender: Address, message: Any) -> None:
        self.items.append((sender, message))

    @property
    def messages(self) -> list[Any]:
        """Without their senders."""
        return [message for _sender, message in self.items]


class TransportContract:
    """The contract of `Transport`. `here` and `there` may be one object. Override `pump` if delivery takes anything but time.

    Addresses are plain: integers for brokers, as actors use them.
    """

    A, B = 1, 2

    @pytest.fixture
    def ends(self) -> tuple[Transport, Transport]:
        """(here, there): address A will listen here and B there, and each end knows how to reach the other's address."""
        raise NotImplementedError

    def pump(self, ends: tuple[Transport, Transport], done: Callable[[], bool]) -> None:
        """Carry messages until `done`; return as well when nothing is under way."""
        raise NotImplementedError

    @pytest.fixture
    def inboxes(self, ends: tuple[Transport, Transport]) -> tuple[Inbox, Inbox]:
        """What A and B receive."""
        a, b = Inbox(), Inbox()
        ends[0].listen(self.A, a)
        ends[1].listen(self.B, b)
        return a, b

    def test_a_message_arrives_with_its_sender(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[0].send(self.A, self.B, _message(7))
        self.pump(ends, lambda: bool(inboxes[1].items))
        assert inboxes[1].items == [(self.A, _message(7))]
        assert inboxes[0].items == []

    def test_the_sender_can_be_answered(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[0].send(self.A, self.B, _message(1))
        self.pump(ends, lambda: bool(inboxes[1].items))
        sender, _ = inboxes[1].items[0]
        ends[1].send(self.B, sender, _message(2))
        self.pump(ends, lambda: bool(inboxes[0].items))
        assert inboxes[0].items == [(self.B, _message(2))]

    def test_a_healthy_transport_carries_everything(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        for number in range(500):
            ends[0].send(self.A, self.B, _message(number))
        self.pump(ends, lambda: len(inboxes[1].items) == 500)
        assert sorted(message.request for message in inboxes[1].messages) == list(range(500))

    def test_two_do_not_listen_at_one_address(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        with pytest.raises(UsageError, match=str(self.A)):
            ends[0].listen(self.A, Inbox())

    def test_sending_to_nobody_is_no_error(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[0].send(self.A, 99, _message(1))
        ends[0].send(self.A, ("controller", 99), _message(1))
        ends[0].send(self.A, self.B, _message(2))
        self.pump(ends, lambda: bool(inboxes[1].items))
        assert inboxes[1].messages == [_message(2)]

    def test_nothing_arrives_after_unlisten(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[0].send(self.A, self.B, _message(1))
        ends[1].unlisten(self.B)
        ends[1].unlisten(self.B)
        ends[0].send(self.A, self.B, _message(2))
        self.pump(ends, lambda: False)
        assert inboxes[1].items == []

    def test_an_address_can_be_used_again(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        ends[1].unlisten(self.B)
        later = Inbox()
        ends[1].listen(self.B, later)
        ends[0].send(self.A, self.B, _message(3))
        self.pump(ends, lambda: bool(later.items))
        assert later.messages == [_message(3)]
        assert inboxes[1].items == []

    def test_a_closed_transport_drops(self, ends: tuple[Transport, Transport], inboxes: tuple[Inbox, Inbox]) -> None:
        for end in ends:
            end.close()
            end.close()
        ends[0].send(self.A, self.B, _message(1))
        self.pump(ends, lambda: False)
        assert inboxes[1].items == []
        with pytest.raises(UsageError):
            ends[0].listen(9, Inbox())


def _message(number: int) -> Fetched:
    """What any broker may say to any other."""
    return Fetched(request=number, session=0, session_epoch=0, error=0, entries=[])
