"""Leader epochs: the table, where an epoch ends, and where two logs part."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.log.epochs import EpochTable, truncation_point
from replog.ports import EpochEnd

Entries = list[tuple[int, int]]


@pytest.mark.parametrize(
    ("before", "assigned", "after"),
    [
        ([], (0, 0), [(0, 0)]),  # epoch 0 is an epoch (KAFKA-10432)
        ([(0, 0)], (1, 5), [(0, 0), (1, 5)]),
        ([(0, 0)], (0, 3), [(0, 0)]),
        ([(0, 0), (2, 5)], (2, 5), [(0, 0), (2, 5)]),
        ([(0, 0), (2, 5)], (4, 5), [(0, 0), (4, 5)]),  # epoch 2 left nothing
        ([(0, 0), (2, 5), (3, 9)], (2, 7), [(0, 0), (2, 7)]),
        ([(0, 0), (2, 5), (3, 9)], (4, 4), [(0, 0), (4, 4)]),
        ([(0, 0), (2, 5)], (3, 0), [(3, 0)]),
    ],
)
def test_assigning_removes_what_it_contradicts(before: Entries, assigned: tuple[int, int], after: Entries) -> None:
    table = EpochTable(before)
    table.assign(*assigned)
    assert list(table.entries()) == after


@pytest.mark.parametrize(
    ("offset", "after"),
    [(0, []), (1, [(0, 0)]), (4, [(0, 0)]), (5, [(0, 0)]), (6, [(0, 0), (2, 5)]), (9, [(0, 0), (2, 5)]), (10, [(0, 0), (2, 5), (3, 9)])],
)
def test_truncating_removes_what_began_at_or_above(offset: int, after: Entries) -> None:
    table = EpochTable([(0, 0), (2, 5), (3, 9)])
    table.truncate(offset)
    assert list(table.entries()) == after


@pytest.mark.parametrize(
    ("offset", "after"),
    [(0, [(0, 0), (2, 5), (3, 9)]), (3, [(0, 3), (2, 5), (3, 9)]), (5, [(2, 5), (3, 9)]), (7, [(2, 7), (3, 9)]), (20, [(3, 20)])],
)
def test_trimming_keeps_the_epoch_in_force(offset: int, after: Entries) -> None:
    table = EpochTable([(0, 0), (2, 5), (3, 9)])
    table.trim(offset)
    assert list(table.entries()) == after


@pytest.mark.parametrize(("offset", "below"), [(0, -1), (1, 0), (5, 0), (7, 2), (9, 2), (10, 3), (20, 3)])
def test_trimming_remembers_the_epoch_of_what_is_in_front(offset: int, below: int) -> None:
    table = EpochTable([(0, 0), (2, 5), (3, 9)])
    table.trim(offset)
    assert table.below == below
    table.trim(offset)
    assert table.below == below


def test_trimming_below_the_first_entry_changes_nothing() -> None:
    table = EpochTable([(2, 5)])
    table.trim(3)
    assert list(table.entries()) == [(2, 5)]


@pytest.mark.parametrize(
    ("epoch", "end"),
    [(-1, None), (0, (0, 10)), (1, (1, 10)), (2, (2, 15)), (3, (2, 15)), (4, (4, 20)), (5, (5, 33)), (6, None)],
)
def test_end_offset_for(epoch: int, end: tuple[int, int] | None) -> None:
    # Epochs 0 and 1 lie below what the log still holds: their end is where the first known one begins.
    assert EpochTable([(2, 10), (4, 15), (5, 20)]).end_offset_for(epoch, 33) == end
    assert EpochTable().end_offset_for(epoch, 33) is None


@pytest.mark.parametrize(("offset", "epoch"), [(9, None), (10, 2), (14, 2), (15, 4), (20, 5), (1_000, 5)])
def test_epoch_at(offset: int, epoch: int | None) -> None:
    assert EpochTable([(2, 10), (4, 15), (5, 20)]).epoch_at(offset) == epoch


# The seven shapes of two logs (P-11): epochs of the leader's records, of the follower's, and what the follower keeps.
SHAPES: dict[str, tuple[list[int], list[int], int]] = {
    "A: follower behind, same epoch": ([1, 1, 1], [1, 1], 2),
    "B: follower behind, leader has a newer epoch": ([1, 1, 2], [1, 1], 2),
    "C: follower ahead, same epoch": ([1, 1], [1, 1, 1, 1], 2),
    "D: follower ahead, leader in a newer, empty epoch": ([1, 1], [1, 1, 1], 2),
    "E: fork, both have epochs of their own": ([1, 1, 3], [1, 1, 2], 2),
    "F: follower forked with an epoch the leader lacks": ([1, 3, 3, 3], [1, 2, 2, 2], 1),
    "G: nothing in common": ([3, 3, 3], [2, 2], 0),
}


def table_of(epochs: list[int]) -> EpochTable:
    """The table of a log whose records have these epochs."""
    return EpochTable((epoch, offset) for offset, epoch in enumerate(epochs))


def part(leader: list[int], follower: list[int], leader_epoch: int) -> tuple[list[int], int]:
    """Follower and leader agree where they part, as by fetches; returns what is left, and the rounds that took."""
    follower, rounds = list(follower), 0
    leading = table_of(leader)
    leading.assign(leader_epoch, len(leader))
    while True:
        table, end = table_of(follower), len(follower)
        latest = table.latest
        if latest is None:
            return follower, rounds
        diverging = leading.end_offset_for(latest.epoch, len(leader))
        assert diverging is not None
        if diverging.epoch >= latest.epoch and diverging.end >= end:
            return follower, rounds
        target, done = truncation_point(table, end, diverging)
        assert target < end, "each round takes something away"
        del follower[target:]
        rounds += 1
        if done:
            assert leader[:target] == follower


@pytest.mark.parametrize("shape", SHAPES)
def test_the_seven_shapes(shape: str) -> None:
    leader, follower, keeps = SHAPES[shape]
    left, rounds = part(leader, follower, leader_epoch=4)
    assert len(left) == keeps
    assert left == leader[:keeps]
    assert rounds == (0 if len(follower) == keeps else 1)


def test_several_unclean_elections_take_several_rounds() -> None:
    # P-15: two brokers led in turn; they share epoch 1 only.
    left, rounds = part([1, 2, 4, 4, 4, 6], [1, 3, 3, 5, 5], leader_epoch=7)
    assert left == [1]
    assert rounds > 1


@pytest.mark.parametrize(
    ("table", "end", "diverging", "expected"),
    [
        ([(1, 0), (3, 5)], 9, (3, 7), (7, True)),  # the same epoch, which is shorter there
        ([(1, 0), (3, 5)], 9, (2, 6), (5, False)),  # it lacks my epoch 3: cut that, and ask again with 1
        ([(1, 0), (3, 5)], 9, (1, 3), (3, True)),
        ([(1, 0), (3, 5)], 9, (1, 8), (5, True)),
        ([(4, 2), (5, 5)], 9, (3, 7), (2, True)),  # nothing at or below: my first epoch goes whole
        ([(4, 2), (5, 5)], 9, (3, 1), (1, True)),
        ([], 9, (3, 7), (7, True)),
        ([], 5, (3, 7), (5, True)),
    ],
)
def test_truncation_point(table: Entries, end: int, diverging: tuple[int, int], expected: tuple[int, bool]) -> None:
    assert truncation_point(EpochTable(table), end, EpochEnd(*diverging)) == expected


@given(st.data())
def test_two_logs_part_where_their_records_differ(data: st.DataObject) -> None:
    """Logs grown by leaders with epochs of their own on a common prefix keep exactly that prefix."""
    common = sorted(data.draw(st.lists(st.integers(0, 3), max_size=6)))
    odd, even = (4, 6, 8, 10), (5, 7, 9, 11)
    leader = common + sorted(data.draw(st.lists(st.sampled_from(odd), max_size=6)))
    follower = common + sorted(data.draw(st.lists(st.sampled_from(even), max_size=6)))
    left, _ = part(leader, follower, leader_epoch=12)
    assert left == common


@given(st.lists(st.tuples(st.sampled_from(["assign", "truncate", "trim"]), st.integers(0, 12), st.integers(0, 12))))
def test_the_table_always_increases(operations: list[tuple[str, int, int]]) -> None:
    table = EpochTable()
    for name, first, second in operations:
        if name == "assign":
            table.assign(first, second)
        else:
            getattr(table, name)(first)
        entries = table.entries()
        assert all(a.epoch < b.epoch and a.start < b.start for a, b in pairwise(entries))
