"""A broker asks to be let go, goes on meanwhile, and leaves only when it knows what others lead instead."""

from __future__ import annotations

import pytest

from replog.broker.commands import Commands
from replog.broker.leaving import Leaving
from replog.errors import Code
from replog.log.memory import MemoryLogDirectory
from replog.messages import ControlledShutdown, ControlledShutdownAnswer, LeaderAndIsr, Leave
from replog.ports import Outbox


class Rig:
    """The parts of one broker that matter, under a controller of epoch 5."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.commands = Commands(MemoryLogDirectory())
        self.leaving = Leaving(3, self.outbox, self.commands)
        self.commands.registered(40)

    def notice(self, number: int, *, controller_epoch: int = 5, complete: bool = False) -> None:
        message = LeaderAndIsr(1, controller_epoch, 40, number, complete, 3_000, [], as_of=number)
        answer = self.commands.on_leader_and_isr(message, lambda _notice: 0)
        assert answer.error == Code.NONE

    def answer(self, notice: int, *, broker_epoch: int = 40, controller_epoch: int = 5, error: int = 0) -> None:
        self.leaving.on_answer(None, ControlledShutdownAnswer(3, broker_epoch, controller_epoch, error, notice), 0)

    def asked(self) -> int:
        count = len([m for _, m in self.outbox.messages if isinstance(m, ControlledShutdown)])
        self.outbox.messages.clear()
        return count


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.notice(0, complete=True)
    return rig


def test_it_asks_when_it_is_told_to_and_with_each_heartbeat_until_it_is_let_go(rig):
    rig.leaving.ask()
    assert rig.asked() == 0
    rig.leaving.on_leave(None, Leave(), 0)
    rig.leaving.ask()
    assert rig.asked() == 2
    rig.answer(0)
    rig.leaving.ask()
    assert rig.asked() == 0


def test_it_may_leave_when_it_has_applied_the_notice_that_it_was_told(rig):
    rig.leaving.on_leave(None, Leave(), 0)
    assert not rig.leaving.is_over
    rig.answer(2)
    assert not rig.leaving.is_over
    rig.notice(2)  # there is a gap
    assert not rig.leaving.is_over
    rig.notice(1)
    assert rig.leaving.is_over


@pytest.mark.parametrize("changes", [{"broker_epoch": 39}, {"controller_epoch": 4}, {"error": Code.NOT_CONTROLLER}])
def test_other_answers_count_for_nothing(rig, changes):
    rig.leaving.on_leave(None, Leave(), 0)
    rig.asked()
    rig.answer(0, **changes)
    assert not rig.leaving.is_over
    rig.leaving.ask()
    assert rig.asked() == 1


def test_after_a_change_of_the_controller_it_asks_again(rig):
    rig.leaving.on_leave(None, Leave(), 0)
    rig.answer(0)
    assert rig.leaving.is_over
    rig.asked()
    rig.notice(0, controller_epoch=6, complete=True)
    assert not rig.leaving.is_over
    rig.leaving.ask()
    assert rig.asked() == 1
    rig.answer(0)  # of the earlier one, late
    assert not rig.leaving.is_over
    rig.answer(0, controller_epoch=6)
    assert rig.leaving.is_over


def test_an_answer_that_overtakes_the_first_notice_of_its_controller_waits_for_it(rig):
    rig.leaving.on_leave(None, Leave(), 0)
    rig.answer(0, controller_epoch=6)
    assert not rig.leaving.is_over
    rig.notice(0, controller_epoch=6, complete=True)
    assert rig.leaving.is_over


def test_a_new_life_asks_anew(rig):
    rig.leaving.on_leave(None, Leave(), 0)
    rig.answer(0)
    rig.commands.registered(41)
    assert not rig.leaving.is_over
    rig.asked()
    rig.leaving.ask()
    assert rig.asked() == 1
