"""Of which refused fetch sessions operators hear."""

from __future__ import annotations

from replog.broker.refusals import AGAIN_MS, Refusals

LANE = (2, True)


def test_a_refusal_that_comes_too_soon_is_told_of_once_it_may_be() -> None:
    """The lane has had a session in between: that it has none now is news, for which it is only too early."""
    refusals = Refusals()
    assert refusals.refused(LANE, 0)
    refusals.granted(LANE)
    told = [now_ms for now_ms in range(10_000, 10 * AGAIN_MS, 10_000) if refusals.refused(LANE, now_ms)]
    assert told == [AGAIN_MS]


def test_lanes_that_were_never_refused_are_not_kept() -> None:
    refusals = Refusals()
    for replica in range(1_000):
        refusals.granted((replica, False))
    assert refusals._granted == set()
