"""How one partition moves: every row of the table is a move, a change of mind, or an end of one (PROTOCOL 4.7, P-83 to P-89)."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from attrs import evolve

from replog.controller import moves
from replog.controller.election import lost
from replog.model import Assignment, PartitionState


def at(replicas: str, adding: str = "", removing: str = "", original: str = "") -> Assignment:
    return Assignment(*(ids(part) for part in (replicas,)), 7, ids(adding), ids(removing), ids(original))


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text))


@pytest.mark.parametrize(
    ("before", "target", "after"),
    [
        (at("123"), "456", at("456123", "456", "123", "123")),
        (at("123"), "124", at("1243", "4", "3", "123")),
        (at("12"), "23", at("231", "3", "1", "12")),
        (at("1"), "123", at("123", "23", "", "1")),
        (at("123"), "1", at("123", "", "23", "123")),
        # Another target while moving: what is not in it leaves, those that were to join included; the first original stays.
        (at("231", "3", "1", "12"), "24", at("2431", "4", "31", "12")),
        (at("231", "3", "1", "12"), "45", at("45231", "45", "231", "12")),
        (at("231", "3", "1", "12"), "12", at("123", "", "3", "12")),
        (at("231", "3", "1", "12"), "32", at("321", "3", "1", "12")),
        # Once more: the one that was kept, then given up, comes back.
        (at("2431", "4", "31", "12"), "34", at("3421", "34", "21", "12")),
    ],
)
def test_a_move_starts_with_the_target_and_those_that_leave_behind_it(before: Assignment, target: str, after: Assignment) -> None:
    assert moves.started(before, ids(target)) == after
    assert moves.target_of(after) == ids(target)
    assert moves.is_moving(after)
    assert moves.restored(after) == moves.placed(before, before.original or before.replicas)
    assert not moves.is_moving(moves.restored(after))


def test_whatever_is_wished_in_between_nothing_is_forgotten() -> None:
    targets = [t for n in (1, 2, 3) for t in permutations((1, 2, 3, 4), n)]
    for first, second in product(targets, repeat=2):
        one = moves.started(at("12"), first)
        two = moves.started(one, second)
        assert two.original == (1, 2)
        assert set(two.replicas) == {1, 2, *first, *second}
        assert set(two.adding) == set(second) - {1, 2}
        assert set(two.removing) == set(two.replicas) - set(second)
        assert len(set(two.replicas)) == len(two.replicas)


def state(leader: int | None, isr: str, epoch: int = 5, min_isr: int = 2, **more: object) -> PartitionState:
    return evolve(PartitionState(leader, epoch, ids(isr), min_isr=min_isr), **more)


@pytest.mark.parametrize(
    ("assignment", "isr", "complete"),
    [
        (at("456123", "456", "123", "123"), "123", False),
        (at("456123", "456", "123", "123"), "12345", False),
        (at("456123", "456", "123", "123"), "456123", True),
        (at("456123", "456", "123", "123"), "456", True),  # everybody who leaves is dead
        (at("1243", "4", "3", "123"), "124", True),  # P-89
        (at("1243", "4", "3", "123"), "143", False),
        (at("120", "2", "0", "01"), "20", False),  # P-85: 1 is kept, and away
        (at("120", "2", "0", "01"), "12", True),
        (at("123", "", "23", "123"), "1", True),
    ],
)
def test_a_move_is_complete_when_all_of_its_target_is_in_sync(assignment: Assignment, isr: str, complete: bool) -> None:
    for is_cancelled in (False, True):
        assert moves.is_complete(assignment, state(1, isr), min_isr=2, is_cancelled=is_cancelled) == complete


@pytest.mark.parametrize(
    ("assignment", "now", "min_isr", "costs"),
    [
        (at("231", "3", "1", "12"), state(1, "12"), 2, False),
        (at("231", "3", "1", "12"), state(1, "123"), 2, False),
        (at("231", "3", "1", "12"), state(3, "23"), 2, True),
        (at("231", "3", "1", "12"), state(3, "23"), 1, False),
        (at("231", "3", "1", "12"), state(2, "2"), 2, False),  # there is no more than one as it is
        (at("231", "3", "1", "12"), state(3, "3", elr=(1, 2)), 2, False),  # those of the ELR are complete
        (at("231", "3", "1", "12"), state(3, "3", elr=(2,)), 2, True),
        (at("456123", "456", "123", "123"), state(4, "1245"), 3, True),
        (at("456123", "456", "123", "123"), state(4, "124"), 2, False),
    ],
)
def test_going_back_at_once_costs_copies(assignment: Assignment, now: PartitionState, min_isr: int, costs: bool) -> None:
    """X-06: as many as min ISR hold what was acknowledged, also after a cancellation."""
    assert moves.costs_copies(assignment, now, min_isr=min_isr) == costs
    back = moves.started(assignment, moves.restored(assignment).replicas)
    assert moves.is_returning(back)
    enough = not costs and any(r in now.isr for r in assignment.original)
    assert moves.is_complete(back, now, min_isr=min_isr, is_cancelled=True) == enough
    everybody = set(assignment.original) <= set(now.isr)
    assert moves.is_complete(back, now, min_isr=min_isr, is_cancelled=False) == everybody, "P-85: wished there, not cancelled"


@pytest.mark.parametrize(
    ("assignment", "returning"),
    [
        (at("12"), False),
        (at("231", "3", "1", "12"), False),
        (at("123", "", "3", "12"), True),
        (at("213", "", "3", "12"), True),
        (at("123", "", "23", "123"), False),
        (at("1234", "3", "4", "12"), False),
    ],
)
def test_a_move_to_where_it_came_from_returns(assignment: Assignment, returning: bool) -> None:
    assert moves.is_returning(assignment) == returning


@pytest.mark.parametrize(
    ("assignment", "before", "live", "after"),
    [
        # The leader stays; an old replica leaves the ISR: what it says later counts no more.
        (at("1243", "4", "3", "123"), state(1, "1234"), "1234", state(1, "124", 6)),
        # also one that was not in sync: it may be back before the leader has heard that it was gone.
        (at("1243", "4", "3", "123"), state(1, "124"), "124", state(1, "124", 6)),
        # P-88: the leader leaves, in the same record.
        (at("456123", "456", "123", "123"), state(1, "456123"), "123456", state(4, "456", 6)),
        (at("456123", "456", "123", "123"), state(1, "456123"), "12356", state(5, "456", 6)),
        # P-88: nobody of the target may lead: deposed all the same.
        (at("456123", "456", "123", "123"), state(1, "456123"), "123", state(None, "456", 6)),
        # Fewer replicas than min_isr: less of it counts.
        (at("123", "", "23", "123"), state(2, "123"), "123", state(1, "1", 6, 1)),
        # More of them: from now on all of it counts.
        (at("123", "23", "", "1"), state(1, "123", min_isr=1), "123", state(1, "123", 5, 2)),
        # Whoever was eligible is so no longer: as many as min_isr are in sync.
        (at("243", "4", "3", "23"), state(4, "24", elr=(3,), last_known=(2, 3)), "24", state(4, "24", 6)),
    ],
)
def test_the_end_of_a_move(assignment: Assignment, before: PartitionState, live: str, after: PartitionState) -> None:
    end = moves.completed(assignment, before, min_isr=min(2, len(moves.target_of(assignment))), live=ids(live))
    assert end == after


@pytest.mark.parametrize(
    ("assignment", "before", "live", "unclean", "after"),
    [
        # nobody new was in sync, but may have said what it holds.
        (at("231", "3", "1", "12"), state(1, "12"), "123", False, state(1, "12", 6)),
        # One was in sync.
        (at("231", "3", "1", "12"), state(1, "123"), "123", False, state(1, "12", 6)),
        # It led.
        (at("231", "3", "1", "12"), state(3, "231"), "123", False, state(1, "12", 6)),
        (at("231", "3", "1", "12"), state(3, "23"), "123", False, state(2, "2", 6, last_known=(2,))),
        # It led, and whoever stays is away.
        (at("231", "3", "1", "12"), state(3, "23"), "3", False, state(None, "2", 6, last_known=(2,))),
        # P-87 (b): only new ones are in sync.
        # ... but nothing was committed since an original left.
        (at("231", "3", "1", "12"), state(3, "3", elr=(2,), last_known=(2, 3)), "123", False, state(2, "2", 6, last_known=(2,))),
        (at("231", "3", "1", "12"), state(3, "3", elr=(2,), last_known=(2, 3)), "123", True, state(2, "2", 6, last_known=(2,))),
        (at("231", "3", "1", "12"), state(3, "3", elr=(2,), last_known=(2, 3)), "13", False, None),
        (at("231", "3", "1", "12"), state(3, "3"), "3", True, None),
        (at("231", "3", "1", "12"), state(3, "3"), "23", True, state(2, "2", 6, recovering=True)),
    ],
)
def test_the_way_back(
    assignment: Assignment, before: PartitionState, live: str, unclean: bool, after: PartitionState | None
) -> None:
    choice = moves.cancelled(assignment, before, min_isr=2, live=ids(live), unclean=unclean)
    assert (None if choice is None else choice.state) == after
    if choice is not None:
        assert (choice.loss is not None) == (after is not None and after.recovering)


@pytest.mark.parametrize(
    ("last_known", "anew", "emptied", "leader"),
    [((1,), (), (), 1), ((1,), (1,), (), 2), ((1,), (), (1,), 2), ((2,), (2,), (), 1), ((1, 2), (), (), 1), ((1, 2), (1, 2), (), 1)],
)
def test_an_unclean_way_back_takes_nobody_who_began_anew_if_it_can(last_known, anew, emptied, leader) -> None:
    before = state(3, "3", last_known=last_known, anew=anew)
    choice = moves.cancelled(at("231", "3", "1", "12"), before, min_isr=2, live=(1, 2, 3), unclean=True, emptied=emptied)
    assert choice is not None
    assert choice.state is not None
    assert choice.state.leader == leader


def test_an_unclean_way_back_says_who_may_hold_more() -> None:
    choice = moves.cancelled(at("231", "3", "1", "12"), state(3, "3"), min_isr=2, live=(2, 3), unclean=True)
    assert choice is not None
    assert choice.loss is not None
    assert (choice.loss.leader, choice.loss.candidates) == (2, ((2, -1, -1), (3, -1, -1)))
    assert (choice.loss.missing, choice.loss.leaving) == ((1,), (3,)), "3 lives, and its copy is put away by this"
    assert lost(choice.loss) == (
        "every record that broker 2 does not hold; brokers 1 are away and may hold more; "
        "brokers 3 may hold more, and their copies are put away"
    )


def test_whoever_joins_is_chosen_last() -> None:
    assert moves.in_order_of_trust(at("456123", "456", "123", "123")) == (1, 2, 3, 4, 5, 6)
    assert moves.in_order_of_trust(at("321")) == (3, 2, 1)
    # One that an earlier target had joining is no better.
    assert moves.in_order_of_trust(at("4312", "4", "312", "12")) == (1, 2, 4, 3)


def test_who_is_left_behind() -> None:
    assert moves.left(at("231", "3", "1", "12"), at("23")) == (1,)
    assert moves.left(at("12"), at("231", "3", "1", "12")) == ()


@pytest.mark.parametrize(
    ("assignment", "joining"),
    [
        (at("12"), ()),
        (at("231", "3", "1", "12"), (3,)),
        (at("456312", "456", "312", "12"), (4, 5, 6, 3)),  # 3 of an earlier target
        (at("1234", "", "34", "12"), (3, 4)),  # on the way back
    ],
)
def test_who_was_not_there_before_the_move_joins_with_it(assignment: Assignment, joining: tuple[int, ...]) -> None:
    assert moves.joining(assignment) == joining
