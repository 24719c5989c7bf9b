"""Elections, and what ISR, ELR and last-known sets become: tables on plain data."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from replog.controller.election import choose, effective_min_isr, initial, longest, recover, with_isr
from replog.model import PartitionState

AR = (1, 2, 3)


def state(leader: int | None, isr: tuple[int, ...], elr: tuple[int, ...] = (), last: tuple[int, ...] = ()) -> PartitionState:
    return PartitionState(leader, 5, isr, elr, last, partition_epoch=9)


@pytest.mark.parametrize(
    ("live", "leader", "isr"),
    [((1, 2, 3), 1, (1, 2, 3)), ((3, 2), 2, (2, 3)), ((3,), 3, (3,))],
)
def test_the_first_live_replica_leads_and_all_live_ones_are_in_sync(live, leader, isr):
    assert initial(AR, live) == PartitionState(leader, 0, isr)


def test_nobody_live_means_no_first_state():
    assert initial(AR, ()) is None


# (before, live, lossy) -> (leader, epoch, isr, elr, last known), with min_isr 2
CHOICES = {
    "nothing to do": (state(1, (1, 2, 3)), (1, 2, 3), (), None),
    "a follower dies: a shrink costs no epoch (KAFKA-15021)": (state(1, (1, 2, 3)), (1, 2), (), (1, 5, (1, 2), (), ())),
    "the leader dies": (state(1, (1, 2, 3)), (2, 3), (), (2, 6, (2, 3), (), ())),
    "the first in replica order leads, not in ISR order": (state(1, (1, 3, 2)), (3, 2), (), (2, 6, (3, 2), (), ())),
    "below min_isr the leaver stays eligible": (state(1, (1, 2)), (1,), (), (1, 5, (1,), (2,), (1, 2))),
    "the leader of two dies": (state(1, (1, 2)), (2, 3), (), (2, 6, (2,), (1,), (1, 2))),
    "a replica outside the ISR never leads": (state(1, (1, 2)), (3,), (), (None, 6, (), (1, 2), (1, 2))),
    "the last in sync goes: nobody leads (P-45)": (state(2, (2,), (1,), (1, 2)), (3,), (), (None, 6, (), (1, 2), (1, 2))),
    "an eligible replica leads once the ISR is empty": (state(None, (), (1, 2), (1, 2)), (2,), (), (2, 6, (2,), (1,), (1, 2))),
    "an eligible replica does not lead while the ISR has a live one": (state(2, (2,), (1,), (1, 2)), (1, 2), (), None),
    "the only ISR member comes back lossy (P-40)": (state(3, (3,), (2,), (2, 3)), (1, 2), (3,), (2, 6, (2,), (), (2, 3))),
    "a lossy replica leaves the ELR, not the last-known set": (state(1, (1,), (2,), (1, 2)), (1,), (2,), (1, 5, (1,), (), (1, 2))),
    "lossy counts although live": (state(1, (1, 2)), (1, 2), (1,), (2, 6, (2,), (), (1, 2))),
    "all at once": (state(1, (1, 2, 3)), (), (), (None, 6, (), (1, 2, 3), (1, 2, 3))),
    "no leader stays no leader, at no cost": (state(None, (), (1,), (1,)), (2, 3), (), None),
}


@pytest.mark.parametrize("case", CHOICES)
def test_choose(case):
    before, live, lossy, expected = CHOICES[case]
    after = choose(before, replicas=AR, min_isr=2, live=live, lossy=lossy).state
    got = None if after is None else (after.leader, after.leader_epoch, after.isr, after.elr, after.last_known)
    assert got == expected


def test_everyone_lost_something_all_of_the_last_known_set_is_asked_once_it_is_there():
    """P-41: ISR [] ELR [] last known [2, 3]; the larger (last epoch, end) leads, and what may be lost is said."""
    gone = state(None, (), (), (2, 3))
    assert choose(gone, replicas=AR, min_isr=2, live=(1, 2)).ask == ()
    assert choose(gone, replicas=AR, min_isr=2, live=(1, 2), unclean=False).state is None
    assert choose(gone, replicas=AR, min_isr=2, live=(2, 3)).ask == (2, 3)
    assert choose(gone, replicas=AR, min_isr=2, live=(1, 2, 3)).ask == (1, 2, 3), "what these two lost the other may have"
    choice = recover(gone, {2: (4, 12), 3: (4, 10)}, AR, min_isr=2)
    assert choice.state == PartitionState(2, 6, (2,), last_known=(2, 3), recovering=True, partition_epoch=9)
    assert choice.loss is not None
    assert (choice.loss.kind, choice.loss.candidates) == ("last_known", ((2, 4, 12), (3, 4, 10)))


def test_who_was_asked_is_asked_again_if_the_one_elected_loses_its_disk_before_enough_have_followed_it():
    """X-11: replicas 2 and 3 of min ISR 2 fail one after the other, 3 with all there is; 2 is elected, and its disk is replaced."""
    elected = recover(state(None, (), (), (2, 3)), {2: (4, 12), 3: (4, 10)}, AR, min_isr=2).state
    assert elected is not None
    gone = choose(elected, replicas=AR, min_isr=2, live=(3,)).state
    assert gone is not None
    assert (gone.leader, gone.elr, gone.last_known) == (None, (2,), (2, 3))
    back = choose(gone, replicas=AR, min_isr=2, live=(2, 3), lossy=(2,))
    assert back.ask == (2, 3)
    assert back.state is not None
    assert longest({2: (-1, 0), 3: (4, 10)}, AR) == 3
    followed = with_isr(elected, (2, 3), replicas=AR, min_isr=2)
    assert followed.last_known == (), "enough hold what there is, and more may be committed"


def test_whoever_was_never_complete_is_elected_if_those_who_were_have_lost_more():
    equal = recover(state(None, (), (), (2, 3)), {1: (4, 12), 2: (4, 12), 3: (3, 40)}, AR, min_isr=2)
    assert equal.state is not None
    assert equal.state.leader == 2
    choice = recover(state(None, (), (), (2, 3)), {1: (4, 13), 2: (4, 12), 3: (3, 40)}, AR, min_isr=2)
    assert choice.state == PartitionState(1, 6, (1,), last_known=(2, 3), recovering=True, partition_epoch=9)


@pytest.mark.parametrize(
    ("live", "given", "asked"),
    [
        ((2, 3), {}, (2, 3)),
        ((2, 3), {"emptied": (1,)}, (2, 3)),
        ((2, 3), {"emptied": (3,)}, ()),
        ((1, 2, 3), {"emptied": (3,)}, (1, 2, 3)),
        ((2, 3), {"emptied": (3,), "broken": (1,)}, (2, 3)),
        ((2, 3), {"emptied": (3,), "joining": (1,)}, (2, 3)),
        ((1, 2, 3), {"emptied": (3,), "joining": (1,)}, (2, 3)),
        ((2, 3), {"emptied": (2, 3), "leaving": (2,)}, ()),
        ((1, 3), {"emptied": (3,)}, ()),
    ],
)
def test_while_one_of_them_has_begun_anew_everybody_is_waited_for(live, given, asked):
    """X-16: the copy of whoever is away may be the only one left; an empty one that leads would have it cut."""
    gone = state(None, (), (), (2, 3))
    choice = choose(gone, replicas=AR, min_isr=2, live=live, **given)
    assert (choice.ask, choice.state) == (asked, None)


def test_that_one_of_them_has_begun_anew_is_remembered_until_it_is_in_sync_again():
    """X-17: its next life finds a log of its own, whatever that lacks."""
    gone = state(None, (), (), (2, 3))
    noted = choose(gone, replicas=AR, min_isr=2, live=(2,), lossy=(3,), emptied=(3,)).state
    assert noted == evolve(gone, anew=(3,))
    assert choose(noted, replicas=AR, min_isr=2, live=(2, 3)).ask == ()
    assert choose(noted, replicas=AR, min_isr=2, live=(1, 2, 3)).ask == (1, 2, 3)
    assert choose(noted, replicas=AR, min_isr=2, live=(1, 2, 3)).state is None
    assert choose(noted, replicas=AR, min_isr=2, live=(1, 3), unclean=True).state.leader == 1
    assert choose(noted, replicas=AR, min_isr=2, live=(1, 3), unclean=True).state.anew == ()
    led = recover(noted, {1: (4, 1), 2: (4, 12), 3: (-1, 0)}, AR, min_isr=2).state
    assert (led.leader, led.anew) == (2, (3,))
    assert recover(noted, {1: (4, 1), 2: (4, 12), 3: (4, 13)}, AR, min_isr=2).state.anew == ()
    assert recover(noted, {1: (4, 1), 2: (4, 12), 3: (-1, 0)}, AR, min_isr=1).state.anew == ()
    assert with_isr(led, (2, 3), replicas=AR, min_isr=2).anew == ()
    assert with_isr(led, (2, 3), replicas=AR, min_isr=3).anew == ()
    assert with_isr(led, (2, 1), replicas=AR, min_isr=3).anew == (3,)


def test_only_who_has_lost_more_than_its_end_is_remembered():
    shrunk = choose(state(3, (2, 3)), replicas=AR, min_isr=2, live=(2,), lossy=(3,)).state
    assert (shrunk.last_known, shrunk.anew) == ((2, 3), ())
    assert choose(state(3, (2, 3)), replicas=AR, min_isr=2, live=(2,), lossy=(3,), emptied=(2, 3)).state.anew == (3,)
    assert choose(state(3, (2, 3)), replicas=AR, min_isr=2, live=(2,), lossy=(3,), emptied=(3,), broken=(3,)).state.anew == ()
    assert choose(state(3, (2, 3)), replicas=AR, min_isr=2, live=(2, 3), emptied=(2, 3)).state is None


def test_where_unclean_elections_are_allowed_those_who_are_there_are_asked_and_nobody_else_is_waited_for():
    gone = state(None, (), (), (2, 3))
    choice = choose(gone, replicas=AR, min_isr=2, live=(2, 3), emptied=(3,), unclean=True)
    assert (choice.ask, choice.awaited) == ((2, 3), (2, 3))
    by_hand = choose(gone, replicas=AR, min_isr=2, live=(2, 3), emptied=(3,), unclean=True, by_hand=True)
    assert (by_hand.ask, by_hand.state.leader) == ((), 2), "who is waited for is not there, and nobody has been asked"
    choice = choose(gone, replicas=AR, min_isr=2, live=(1, 2, 3), emptied=(3,), unclean=True, by_hand=True)
    assert (choice.ask, choice.awaited) == ((1, 2, 3), (2, 3, 1))


@pytest.mark.parametrize(("emptied", "leader"), [((), 3), ((3,), 1), ((1, 3), 3), ((1,), 3)])
def test_an_unclean_election_takes_who_has_begun_anew_last(emptied, leader):
    choice = choose(state(None, (), (), (2, 3)), replicas=AR, min_isr=2, live=(1, 3), unclean=True, emptied=emptied)
    assert choice.state.leader == leader


def test_the_only_one_who_counts_is_not_remembered():
    choice = recover(state(None, (), (), (2, 3)), {2: (4, 12), 3: (4, 10)}, AR, min_isr=1)
    assert choice.state == PartitionState(2, 6, (2,), recovering=True, partition_epoch=9)


def test_an_eligible_replica_that_is_away_forbids_asking_the_last_known_set():
    assert choose(state(None, (), (1,), (1, 2)), replicas=AR, min_isr=2, live=(2, 3)).ask == ()


@pytest.mark.parametrize(
    ("answers", "best"),
    [
        ({1: (4, 10), 2: (5, 3)}, 2),
        ({1: (4, 10), 2: (4, 11)}, 2),
        ({3: (4, 10), 2: (4, 10)}, 2),
        ({3: (-1, 0)}, 3),
    ],
)
def test_the_longest_log_is_by_epoch_then_end_then_replica_order(answers, best):
    assert longest(answers, AR) == best


def test_unclean_elections_need_permission_and_say_so():
    gone = state(1, (1,), (2,), (1, 2))
    assert choose(gone, replicas=AR, min_isr=2, live=(3,)).state == PartitionState(None, 6, (), (1, 2), (1, 2), partition_epoch=9)
    choice = choose(gone, replicas=AR, min_isr=2, live=(3,), unclean=True)
    assert choice.state == PartitionState(3, 6, (3,), recovering=True, partition_epoch=9)
    assert choice.loss is not None
    assert (choice.loss.kind, choice.loss.leader, choice.loss.missing) == ("unclean", 3, (1, 2))


def test_an_unclean_election_takes_who_was_complete_before_anybody_else():
    """Not all of the last-known set are there to be asked: of those who live its members come first, whatever the replica order."""
    gone = state(None, (), (), (2, 3))
    choice = choose(gone, replicas=AR, min_isr=2, live=(1, 3), unclean=True)
    assert choice.state is not None
    assert choice.state.leader == 3


def test_whoever_joins_with_a_move_is_not_elected_uncleanly():
    gone = state(None, (), (1,), (1,))
    assert choose(gone, replicas=(1, 3), min_isr=1, live=(3,), unclean=True, joining=(3,)).state is None
    choice = choose(gone, replicas=(1, 2, 3), min_isr=1, live=(2, 3), unclean=True, joining=(3,))
    assert choice.state.leader == 2
    assert choose(state(None, (3,)), replicas=(1, 3), min_isr=1, live=(3,), unclean=True, joining=(3,)).state.leader == 3, "it is in sync"


def test_nobody_is_elected_uncleanly_while_a_complete_replica_only_has_no_room():
    led = state(1, (1,), (2,), (1, 2))
    choice = choose(led, replicas=AR, min_isr=2, live=(3,), roomless=(1,), unclean=True)
    assert choice.state == PartitionState(None, 6, (), (1, 2), (1, 2), partition_epoch=9)
    assert choice.loss is None
    for lossy, roomless in (((1,), (1,)), ((), (4,))):  # it is not complete any more, or another one is meant
        assert choose(led, replicas=AR, min_isr=2, live=(3,), lossy=(*lossy, 2), roomless=roomless, unclean=True).state.leader == 3
    assert choose(led, replicas=AR, min_isr=2, live=(2, 3), roomless=(1,), unclean=True).state.leader == 2, "cleanly"


def test_permission_for_unclean_elections_never_replaces_a_clean_one():
    choice = choose(state(1, (1,), (2,), (1, 2)), replicas=AR, min_isr=2, live=(2, 3), unclean=True)
    assert choice.loss is None
    assert choice.state is not None
    assert (choice.state.leader, choice.state.recovering) == (2, False)


def test_an_isr_of_min_isr_empties_elr_and_last_known():
    after = with_isr(state(1, (1,), (2,), (1, 2)), (1, 3), replicas=AR, min_isr=2)
    assert (after.isr, after.elr, after.last_known) == ((1, 3), (), ())


def test_elr_stays_within_the_assignment():
    after = with_isr(state(1, (1, 9), (8,), (7,)), (1,), replicas=AR, min_isr=2)
    assert (after.elr, after.last_known) == ((), (1,))


def test_min_isr_is_never_more_than_the_replicas():
    assert [effective_min_isr(m, AR) for m in (None, 1, 3, 5)] == [1, 1, 3, 3]


SOME = st.sets(st.integers(1, 5)).map(lambda s: tuple(sorted(s)))


@given(isr=SOME, elr=SOME, last=SOME, live=SOME, lossy=SOME, min_isr=st.integers(1, 3), unclean=st.booleans())
def test_every_choice_keeps_the_invariants(isr, elr, last, live, lossy, min_isr, unclean):
    """I8 and KIP-841 hold after any sequence of deaths, from any legal state; deciding twice changes nothing."""
    replicas = (3, 1, 5, 2, 4)
    elr = () if len(isr) >= min_isr else tuple(b for b in elr if b not in isr)
    before = PartitionState(isr[0] if isr else None, 5, isr, elr, last)
    live = tuple(b for b in live if b not in lossy)
    choice = choose(before, replicas=replicas, min_isr=min_isr, live=live, lossy=lossy, unclean=unclean)
    after = choice.state or before
    assert after.leader is None or after.leader in after.isr
    assert set(after.isr) <= set(live)
    assert not set(after.elr) & (set(after.isr) | set(lossy))
    assert not (after.elr and len(after.isr) >= min_isr)
    assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader)
    again = choose(after, replicas=replicas, min_isr=min_isr, live=live, lossy=lossy, unclean=unclean)
    assert again.state is None
