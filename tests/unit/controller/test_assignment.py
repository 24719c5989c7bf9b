"""Placement: spread, rack aware, the same every time; and what an explicit assignment may be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.controller.assignment import alternate_racks, check_assignment, spread
from replog.errors import UsageError


def test_three_brokers_round_robin():
    brokers = dict.fromkeys((1, 2, 3))
    assert spread(brokers, 4, 2) == {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (1, 3)}


def test_topics_begin_on_different_brokers():
    brokers = dict.fromkeys((1, 2, 3))
    assert [spread(brokers, 1, 1, start=s)[0] for s in range(4)] == [(1,), (2,), (3,), (1,)]


def test_racks_alternate():
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: None}
    assert alternate_racks(racks) == [5, 1, 3, 2, 4]


def test_no_rack_gets_a_second_copy_before_every_rack_has_one():
    racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "c"}
    for replicas in spread(racks, 30, 3).values():
        assert {racks[b] for b in replicas} == {"a", "b", "c"}


def test_brokers_without_a_rack_stand_in_one():
    """Nobody knows that they stand apart (Kafka's controller: StripedReplicaPlacer); "" is no name of a rack."""
    racks = {1: "a", 2: "b", 3: None, 4: "", 5: None, 6: ""}
    for replicas in spread(racks, 60, 3).values():
        assert sorted(racks[b] or "" for b in replicas) == ["", "a", "b"]


@given(st.integers(1, 7), st.integers(1, 40), st.integers(0, 100), st.data())
def test_spread_is_even_and_legal(count, partitions, start, data):
    factor = data.draw(st.integers(1, count))
    racks = {b: data.draw(st.sampled_from((None, "a", "b"))) for b in range(count)}
    placed = spread(racks, partitions, factor, start)
    assert sorted(placed) == list(range(partitions))
    assert all(len(set(r)) == len(r) == factor and set(r) <= set(racks) for r in placed.values())
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders.get(b, 0) for b in racks) <= 1


BAD = {
    "not a mapping": [1, 2],
    "empty": {},
    "negative": {-1: [1]},
    "a partition that is no number": {"0": [1]},
    "no replicas": {0: []},
    "not a list": {0: 1},
    "an unknown broker": {0: [1, 9]},
    "a flag as broker": {0: [True]},
    "a broker twice": {0: [1, 1]},
    "a hole": {0: [1], 2: [1]},
    "different factors": {0: [1], 1: [1, 2]},
}


@pytest.mark.parametrize("case", BAD)
def test_bad_assignments_are_refused(case):
    with pytest.raises(UsageError):
        check_assignment(BAD[case], {1: None, 2: None})


def test_a_good_assignment_is_taken_as_it_is():
    assert check_assignment({1: [2, 1], 0: (1, 2)}, {1: None, 2: None}) == {0: (1, 2), 1: (2, 1)}
