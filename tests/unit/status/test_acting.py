"""What a look at a cluster believes while a controller is elected: a view may be of before, whoever answers."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from tests.unit.cli.conftest import run_with
from tests.unit.cli.test_health import known, view

from replog.client.results import ControllerDescription, FeatureLevels
from replog.client.view import View
from replog.errors import TimedOut, rejection
from replog.status import acting
from replog.status.acting import Look, look

BEFORE, AFTER = view(), view((1, 3), there=(1, 3), controller=3)
"""Broker 2, the controller, is dead: as brokers knew it before, and as they hear of it."""


class Elected:
    """Its brokers tell of these views, the last one for ever; its controllers answer with these, the last one for ever."""

    def __init__(self, views: list[View], answers: list[FeatureLevels | Exception]) -> None:
        self.views, self.answers = views, answers
        self.waits = 0

    def _view(self, _timeout_s: float | None) -> View:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    def describe_features(self, *, timeout_s: float | None) -> FeatureLevels:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _wait(self, _done: Callable[[], bool], _timeout_s: float | None) -> bool:
        self.waits += 1
        return False


@pytest.mark.parametrize("late", range(1, 5))
def test_a_view_of_before_an_election_is_not_believed(late: int) -> None:
    """Whoever answered has just been elected; the brokers that tell hear of it one after the other."""
    client = Elected([BEFORE] * late + [AFTER], [known(1, 3)])
    assert look(client, 5) == Look(AFTER, "", False)  # type: ignore[arg-type]
    for words, said in (("health", "NOT healthy: cluster c"), ("controller", "broker 3 is the controller, epoch 1")):
        told = run_with(Elected([BEFORE] * late + [AFTER], [known(1, 3)]), words)  # type: ignore[arg-type]
        assert (told.status, told.lines[0]) == (1 if words == "health" else 0, said)


def test_who_comes_while_it_is_looked_is_no_contradiction() -> None:
    client = Elected([view(), view(there=(1, 2, 3, 4))], [known(), known(1, 2, 3, 4)])
    assert look(client, 5) == Look(view_of(4, client), "", False)  # type: ignore[arg-type]


def test_a_first_view_that_takes_long_may_be_newer_than_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "HEARING_S", 0)
    client = Elected([view(), view(there=(1, 2, 3, 4))], [known(), known(1, 2, 3, 4)])
    assert look(client, 5) == Look(view_of(4, client), "", False)  # type: ignore[arg-type]


@pytest.mark.parametrize(("timeout_s", "at_most"), [(0.2, 0.3), (5, 0.6), (None, 0.6)])
def test_brokers_have_no_longer_than_whoever_asks(timeout_s: float | None, at_most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(acting.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(acting, "HEARING_S", 0.5)
    client = Elected([BEFORE], [known(1, 3)])
    monkeypatch.setattr(client, "_wait", lambda _done, seconds: now_s.append(now_s.pop() + seconds))
    assert look(client, timeout_s).no_controller.endswith("are registered now: 2")  # type: ignore[arg-type]
    assert now_s[0] <= at_most


def led(epoch: int) -> View:
    """The same brokers, as whoever has heard of the controller of this epoch knows them."""
    seen = view()
    seen.controller_epoch = epoch
    return seen


def elected(epoch: int) -> FeatureLevels:
    """What the controller of this epoch answers that has the same brokers."""
    return attrs.evolve(known(), controller=ControllerDescription(2, epoch, 5, 0, 0))


@pytest.mark.parametrize("late", range(1, 5))
def test_an_election_after_which_the_same_brokers_are_registered_is_noticed(late: int) -> None:
    client = Elected([led(1)] * late + [led(2)], [elected(2)])
    assert look(client, 5) == Look(client.views[-1], "", False, elected(2).controller)  # type: ignore[arg-type]
    assert client.views[0].controller_epoch == 2


def test_what_an_earlier_controller_has_answered_is_asked_again() -> None:
    client = Elected([led(2)], [elected(1), elected(2)])
    assert look(client, 5).controller == elected(2).controller  # type: ignore[arg-type]


def test_a_controller_that_does_not_say_its_epoch_is_believed_by_its_brokers() -> None:
    """As brokers of older versions answer."""
    client = Elected([led(1)], [known()])
    assert look(client, 5) == Look(client.views[0], "", False, None)  # type: ignore[arg-type]
    assert client.waits == 0


def test_brokers_that_do_not_hear_of_an_election_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "HEARING_S", 0)
    client = Elected([led(1)], [elected(2)])
    why = "a broker has not heard from the controller that its epoch is 2, and knows of epoch 1"
    assert look(client, 5) == Look(client.views[0], why, False)  # type: ignore[arg-type]


def view_of(brokers: int, client: Elected) -> View:
    """The one that is left, which has so many."""
    assert len(client.views[0].brokers) == brokers
    return client.views[0]


def test_brokers_that_hear_nothing_from_the_controller_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "HEARING_S", 0)
    seen = look(Elected([BEFORE], [known(1, 3, 4)]), 5)  # type: ignore[arg-type]
    assert seen == Look(BEFORE, "a broker has not heard from the controller that others are registered now: 2, 4", False)
    told = run_with(Elected([BEFORE], [known(1, 3, 4)]), "health")  # type: ignore[arg-type]
    assert (told.status, told.lines[:2]) == (1, ["NOT healthy: cluster c", seen.no_controller])


@pytest.mark.parametrize(
    ("refusal", "no_controller", "may_hide"),
    [
        (TimedOut("nobody there"), "no controller answers, or the metadata store is away: nobody there", False),
        (rejection(31), "", True),
    ],
)
def test_a_controller_that_stops_answering_meanwhile(refusal: Exception, no_controller: str, may_hide: bool) -> None:
    client = Elected([BEFORE], [known(1, 3), refusal])
    assert look(client, 5) == Look(BEFORE, no_controller, may_hide)  # type: ignore[arg-type]
    assert client.waits == 1
