"""Wishes that a broker passes on: whose they were, and what becomes of those that a lost controller had."""

from __future__ import annotations

from typing import Any

import pytest

from replog.broker import forwarding
from replog.broker.commands import Commands
from replog.broker.forwarding import Forwarding
from replog.broker.routing import Routing
from replog.config import BrokerConfig
from replog.errors import Code
from replog.log.memory import MemoryLogDirectory
from replog.messages import Admin, AdminAnswer, Disconnected, Unreached
from replog.ports import Outbox

AT_3 = ("controller", 3)


class Passing:
    """A broker's wishes, and what it says."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.forwarding = Forwarding(self.outbox, {}, Routing(), BrokerConfig())
        self.commands = Commands(MemoryLogDirectory())
        self.commands.broker_epoch = 50

    def wish(self, client: Any, request: int, controller: int | None = 3) -> None:
        self.commands.controller = controller
        self.forwarding.forward(client, Admin(request, "create_topic", {"name": "t"}), self.commands, 0)

    def answer(self, number: int, broker_epoch: int = 50) -> None:
        self.forwarding.answered(AdminAnswer(-1, Code.NONE, origin=[broker_epoch, number]), self.commands.broker_epoch, 0)

    def said(self) -> list[tuple[Any, int, int]]:
        """(to, number of the request or of the wish, code) since the last time."""
        sent, self.outbox.messages[:] = list(self.outbox.messages), []
        return [(to, m.origin[1], 0) if isinstance(m, Admin) else (to, m.request, m.error) for to, m in sent]


def test_an_answer_goes_to_whoever_asked_once() -> None:
    passing = Passing()
    passing.wish("a", 7)
    passing.wish("b", 7)
    assert passing.said() == [(AT_3, 1, 0), (AT_3, 2, 0)]
    for _ in range(2):
        passing.answer(2)
    assert passing.said() == [("b", 7, 0)]


def test_an_answer_to_a_wish_of_an_earlier_life_is_nobodys() -> None:
    """The controller that granted it knows the broker by its number only, which the new life has too."""
    passing = Passing()
    passing.wish("a", 7)
    passing.said()
    passing.answer(1, broker_epoch=49)
    assert passing.said() == []
    passing.commands.broker_epoch = 51  # it has registered again meanwhile: it is the same life all the same
    passing.answer(1)
    assert passing.said() == [("a", 7, 0)]


@pytest.mark.parametrize("origin", [None, 1, [], [50], [50, "1"], [50, [1]], [50, 1, 2], {"50": 1}, (50, 2)])
def test_an_answer_without_a_wish_is_nobodys(origin: Any) -> None:
    passing = Passing()
    passing.wish("a", 7)
    passing.said()
    passing.forwarding.answered(AdminAnswer(-1, Code.NONE, origin=origin), 50, 0)
    assert passing.said() == []


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        (Disconnected(AT_3), [("a", 7, Code.REQUEST_TIMED_OUT), ("b", 8, Code.REQUEST_TIMED_OUT)]),
        (Disconnected(3), []),  # the broker beside it
        (Disconnected(AT_3, only_reads=True), []),
        (Disconnected(("controller", 4)), [("c", 9, Code.REQUEST_TIMED_OUT)]),
        (Disconnected("a"), []),
    ],
)
def test_who_asked_a_controller_that_is_lost_hears_of_it_at_once_and_once(lost: Disconnected, told: list[Any]) -> None:
    """Neither the wish nor its answer is repeated by anybody but the client."""
    passing = Passing()
    passing.wish("a", 7)
    passing.wish("b", 8)
    passing.wish("c", 9, controller=4)
    passing.said()
    passing.forwarding.disconnected(lost)
    assert passing.said() == told
    passing.forwarding.disconnected(lost)
    for number in (1, 2, 3):
        passing.answer(number)
    late = [("a", 7, 0), ("b", 8, 0), ("c", 9, 0)]
    assert passing.said() == [each for each in late if each[0] not in {client for client, _, _ in told}]


def test_whose_wish_is_waited_for_no_longer_is_told_so_and_only_who_asks_too_much_loses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told nothing, a client would wait until its own time is over. It may have been granted: that is no refusal."""
    monkeypatch.setattr(forwarding, "_UNDER_WAY_EACH_MAX", 3)
    passing = Passing()
    passing.wish("quiet", 1)
    for request in range(1, 7):
        passing.wish("loud", request)
    doubt = Code.REQUEST_TIMED_OUT
    passed = [(AT_3, number, 0) for number in range(1, 8)]
    assert passing.said() == [*passed[:4], *(one for n in (1, 2, 3) for one in (("loud", n, doubt), passed[3 + n]))]
    for number in range(1, 8):
        passing.answer(number)
    assert passing.said() == [("quiet", 1, 0), ("loud", 4, 0), ("loud", 5, 0), ("loud", 6, 0)]
    assert (passing.forwarding._under_way, passing.forwarding._of_client) == ({}, {})


def test_of_all_clients_so_many_wishes_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_UNDER_WAY_MAX", 3)
    passing = Passing()
    for client in "abcde":
        passing.wish(client, 9)
    answers = [one for one in passing.said() if one[0] != AT_3]
    assert answers == [("a", 9, Code.REQUEST_TIMED_OUT), ("b", 9, Code.REQUEST_TIMED_OUT)]
    passing.forwarding.disconnected(Disconnected(AT_3))
    assert passing.said() == [(client, 9, Code.REQUEST_TIMED_OUT) for client in "cde"]
    assert (passing.forwarding._under_way, passing.forwarding._of_client) == ({}, {})


def test_who_asked_a_controller_that_was_not_reached_hears_that_nothing_was_done_and_once() -> None:
    passing = Passing()
    passing.wish("a", 7)
    passing.wish("b", 8)
    wishes = [message for _, message in passing.outbox.messages]
    passing.said()
    for _ in range(2):
        passing.forwarding.on_unreached(None, Unreached(AT_3, wishes[0]), 0)
    passing.forwarding.on_unreached(None, Unreached(AT_3, Admin(-1, "create_missing", {})), 0)  # nobody's
    assert passing.said() == [("a", 7, Code.NOT_CONTROLLER)]
    passing.forwarding.disconnected(Disconnected(AT_3))
    assert passing.said() == [("b", 8, Code.REQUEST_TIMED_OUT)]


def test_without_a_controller_the_client_is_to_try_again() -> None:
    passing = Passing()
    passing.wish("a", 7, controller=None)
    assert passing.said() == [("a", 7, Code.NOT_CONTROLLER)]
