"""Where a leader's log parts from what was read: the rounds, by tables."""

from __future__ import annotations

import pytest

from replog.client.parting import Parting

READ = [(1, 10), (4, 20), (6, 30)]
"""Epoch 1 from 10 on, 4 from 20 on, 6 from 30 on; the reader is at 40."""


@pytest.mark.parametrize(
    ("answers", "asked", "changed"),
    [
        ([(6, 35)], [6], 35),  # it has the epoch, and less of it
        ([(6, 50), (9, 9)], [6], 40),  # nobody asks on who knows all
        ([(4, 25)], [6], 25),  # it lacks the last one, and has less of the one before
        ([(4, 99)], [6], 30),  # its epoch 4 goes on where the reader's was replaced
        ([(5, 99), (4, 30)], [6, 4], 30),  # an epoch in between: of the earlier one it has all
        ([(5, 99), (4, 24)], [6, 4], 24),  # ... or less
        ([(5, 99), (2, 99), (1, 13)], [6, 4, 1], 13),
        ([(5, 99), (2, 99), (1, 99)], [6, 4, 1], 20),
        ([(0, 5)], [6], 5),  # what was read begins after all that it has
        ([(0, 15)], [6], 10),  # nothing of what was read is there
        ([(5, 99), (-1, -1)], [6, 4], 20),  # it forgets in between
        ([(7, 35)], [6], 35),  # no answer to the question: as if it were about the epoch that was asked for
    ],
)
def test_the_leader_is_asked_until_it_is_known(answers: list[tuple[int, int]], asked: list[int], changed: int) -> None:
    parting = Parting(9, READ, 40)
    seen = []
    for epoch, end in answers:
        seen.append(parting.asks)
        found = parting.answered(epoch, end)
        if found is not None:
            break
    assert (seen, found) == (asked, changed)


def test_every_round_is_about_an_earlier_epoch() -> None:
    """Whatever a broken leader answers, there are no more rounds than epochs."""
    for epoch in range(-1, 9):
        for end in (0, 15, 25, 35, 99):
            parting = Parting(9, READ, 40)
            rounds = [parting.asks]
            while (found := parting.answered(epoch, end)) is None:
                rounds.append(parting.asks)
                assert len(rounds) <= len(READ)
            assert rounds == sorted(set(rounds), reverse=True)
            assert 0 <= found <= 40
