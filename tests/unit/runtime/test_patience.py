"""How long a broker whose number is taken waits: as long as the owner may be dead, and then it asks once more (P-72)."""

from __future__ import annotations

from replog.runtime.patience import Patience, Standing

WELL = Standing()
JUDGED = Standing(True, True, True)
OWNED = Standing(True, True, False)
OTHERWISE = Standing(True, False, True)


def test_a_refusal_that_is_not_about_its_number_is_final_whatever_sessions_there_are():
    patience = Patience()
    assert patience.is_over(OTHERWISE)
    assert not patience.look(OTHERWISE)
    assert patience.is_over(OTHERWISE)


def test_a_number_whose_owner_lives_is_refused_for_good():
    patience = Patience()
    assert patience.is_over(OWNED)
    assert not patience.look(OWNED)
    assert not patience.look(JUDGED), "whatever becomes of the owner later"
    assert patience.is_over(JUDGED)


def test_while_a_session_is_judged_it_waits_and_then_asks_once():
    patience = Patience()
    assert not patience.is_over(JUDGED), "before anybody has looked"
    assert [patience.look(JUDGED) for _ in range(3)] == [False] * 3
    assert not patience.is_over(JUDGED)
    assert patience.look(OWNED), "it has been decided: ask"
    assert not patience.is_over(OWNED), "until there is an answer"
    assert not patience.look(OWNED), "once"
    assert patience.is_over(OWNED)


def test_whoever_is_let_in_begins_anew():
    patience = Patience()
    patience.look(JUDGED)
    patience.look(OWNED)
    assert not patience.look(WELL)
    assert not patience.look(JUDGED)
    assert not patience.is_over(JUDGED)
    assert patience.look(OWNED)
