"""Topics that clients seek and that do not exist: what a broker asks the controller for, and what it tells its clients meanwhile."""

from __future__ import annotations

import pytest

from replog.broker.commands import Commands
from replog.broker.missing import MissingTopics
from replog.broker.routing import Routing
from replog.config import BrokerConfig, TopicConfig
from replog.errors import Code
from replog.log.memory import MemoryLogDirectory
from replog.messages import Admin, AdminAnswer, ClusterView, TopicView
from replog.ports import Outbox

CONTROLLER = 3
PATIENCE_MS = BrokerConfig().ack_timeout_ms


class Asking:
    """What is missing at a broker that knows the topic "here"."""

    def __init__(self, *, on: bool = True) -> None:
        self.outbox = Outbox()
        routing = Routing()
        routing.merge(ClusterView(1, 5, -1, 1, [], [TopicView("here", b"t" * 16, TopicConfig(min_isr=1), ())]))
        self.commands = Commands(MemoryLogDirectory())
        self.commands.broker_epoch = 50
        self.missing = MissingTopics(self.outbox, routing, BrokerConfig(auto_create_topics=on))

    def look(self, *sought: str, controller: int | None = CONTROLLER, now_ms: int = 0) -> list[tuple[str, int]]:
        self.commands.controller = controller
        return [(name, code) for name, code, _ in self.missing.look(sought, self.commands, now_ms)]

    def asked(self) -> list[str]:
        """The topics that the controller was asked for since the last time."""
        sent, self.outbox.messages[:] = list(self.outbox.messages), []
        assert all(to == ("controller", CONTROLLER) and isinstance(wish, Admin) for to, wish in sent)
        return [wish.arguments["name"] for _, wish in sent]

    def answer(self, name: str, code: int, now_ms: int = 0, broker_epoch: int = 50) -> bool:
        return self.missing.answered(AdminAnswer(-1, code, f"no {name}", origin=[broker_epoch, name]), 50, now_ms)


def test_off_nothing_is_made_and_nothing_said() -> None:
    asking = Asking(on=False)
    assert asking.look("new", "a b") == []
    assert asking.asked() == []


def test_it_is_asked_for_once_however_many_seek_it() -> None:
    asking = Asking()
    for _ in range(100):
        assert asking.look("here", "new") == [("new", Code.LEADER_NOT_AVAILABLE)]
    assert asking.look("here") == []
    assert asking.asked() == ["new"]
    asking.answer("new", Code.NONE)
    assert asking.look("new") == [("new", Code.LEADER_NOT_AVAILABLE)]
    assert asking.asked() == ["new"]  # the news of it is on the way, or it has been deleted since: the controller knows


def test_an_answer_that_does_not_come_is_asked_for_again() -> None:
    asking = Asking()
    asking.look("new", now_ms=0)
    asking.look("new", now_ms=PATIENCE_MS - 1)
    assert asking.asked() == ["new"]
    asking.look("new", now_ms=PATIENCE_MS)
    assert asking.asked() == ["new"]


@pytest.mark.parametrize("name", ["a b", "", ".", "x" * 250, "ü"])
def test_a_name_that_no_topic_can_have_is_refused_here(name: str) -> None:
    asking = Asking()
    assert asking.look(name) == [(name[:249], Code.INVALID_TOPIC)]
    assert asking.asked() == []


def test_a_refusal_is_told_for_a_while() -> None:
    asking = Asking()
    asking.look("new")
    assert asking.asked() == ["new"]
    assert asking.answer("new", Code.POLICY_VIOLATION)
    assert asking.missing.look(["new"], CONTROLLER, PATIENCE_MS - 1) == [("new", Code.POLICY_VIOLATION, "no new")]
    assert asking.asked() == []
    assert asking.look("new", now_ms=PATIENCE_MS) == [("new", Code.LEADER_NOT_AVAILABLE)]
    assert asking.asked() == ["new"]


@pytest.mark.parametrize("code", [Code.NOT_CONTROLLER, Code.UNKNOWN_SERVER_ERROR])
def test_an_answer_that_says_nothing_about_the_topic_is_no_refusal(code: int) -> None:
    asking = Asking()
    asking.look("new")
    asking.answer("new", code)
    assert asking.look("new") == [("new", Code.LEADER_NOT_AVAILABLE)]
    assert asking.asked() == ["new", "new"]


def test_without_a_controller_clients_ask_again() -> None:
    asking = Asking()
    assert asking.look("new", controller=None) == [("new", Code.LEADER_NOT_AVAILABLE)]
    assert asking.asked() == []
    asking.look("new")
    assert asking.asked() == ["new"]


def test_what_is_remembered_is_bounded() -> None:
    asking = Asking()
    names = [f"new-{number}" for number in range(2_500)]
    assert {code for _, code in asking.look(*names)} == {Code.LEADER_NOT_AVAILABLE}
    assert asking.asked() == names[:1_000]
    for name in names:
        asking.answer(name, Code.POLICY_VIOLATION)
    asking.look(*names)
    assert asking.asked() == names[1_000:2_000]
    for name in names:
        asking.answer(name, Code.POLICY_VIOLATION)
    verdicts = dict(asking.look(*names))
    assert [name for name, code in verdicts.items() if code == Code.POLICY_VIOLATION] == names[1_000:2_000]


def test_answers_to_wishes_of_clients_are_left_alone() -> None:
    assert not Asking().missing.answered(AdminAnswer(1, Code.NONE, origin=[50, 7]), 50, 0)
    assert Asking().answer("never-asked", Code.POLICY_VIOLATION)


def test_an_answer_to_an_earlier_life_is_none_to_this_one() -> None:
    asking = Asking()
    asking.look("new")
    assert asking.answer("new", Code.POLICY_VIOLATION, broker_epoch=49)
    assert asking.look("new") == [("new", Code.LEADER_NOT_AVAILABLE)]


def test_whoever_was_refused_and_then_made_is_on_its_way() -> None:
    asking = Asking()
    asking.look("new")
    asking.answer("new", Code.POLICY_VIOLATION)
    assert asking.look("new") == [("new", Code.POLICY_VIOLATION)]
    asking.answer("new", Code.NONE)
    assert asking.look("new") == [("new", Code.LEADER_NOT_AVAILABLE)]
