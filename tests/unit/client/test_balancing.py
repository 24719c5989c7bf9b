"""Balanced placements: even, rack aware, and with no more movement than that takes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.client.balancing import Place, balanced
from replog.errors import UsageError


def moved(before: dict[Place, tuple[int, ...]], after: dict[Place, tuple[int, ...]]) -> int:
    return sum(len(set(after[place]) - set(before[place])) for place in before)


def of(*replicas: tuple[int, ...]) -> dict[Place, tuple[int, ...]]:
    return {("t", number): one for number, one in enumerate(replicas)}


@pytest.mark.parametrize(
    ("before", "brokers", "after"),
    [
        (of((1, 2), (2, 3), (3, 1)), (1, 2, 3), of((1, 2), (2, 3), (3, 1))),
        (of((1, 2), (1, 2), (1, 2)), (1, 2), of((1, 2), (1, 2), (2, 1))),
        (of((1, 2), (1, 2), (1, 2)), (1, 2, 3), of((1, 2), (3, 1), (2, 3))),
        (of((1, 2), (2, 1)), (3, 4), of((3, 4), (4, 3))),
        (of((1, 2, 3)), (1, 2, 4), of((1, 2, 4))),
        ({}, (1,), {}),
    ],
)
def test_what_comes_out(before: dict[Place, tuple[int, ...]], brokers: tuple[int, ...], after: dict[Place, tuple[int, ...]]) -> None:
    found = balanced(before, dict.fromkeys(brokers))
    assert moved(before, found) == moved(before, after)
    assert Counter(b for one in found.values() for b in one) == Counter(b for one in after.values() for b in one)
    assert Counter(one[0] for one in found.values()) == Counter(one[0] for one in after.values())


def test_a_broker_that_joins_gets_its_share_and_nobody_else_changes() -> None:
    before = of(*((n % 3 + 1, (n + 1) % 3 + 1) for n in range(12)))
    after = balanced(before, dict.fromkeys((1, 2, 3, 4)))
    assert Counter(b for one in after.values() for b in one) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert moved(before, after) == 6


def test_a_broker_that_leaves_gives_away_only_its_own() -> None:
    before = of(*((n % 4 + 1, (n + 1) % 4 + 1) for n in range(12)))
    after = balanced(before, dict.fromkeys((1, 2, 3)))
    assert moved(before, after) == 6
    assert Counter(b for one in after.values() for b in one) == {1: 8, 2: 8, 3: 8}


def test_racks_get_a_second_copy_last() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    after = balanced(of((1, 2), (3, 4), (2, 1), (4, 3)), racks)
    assert all({racks[b] for b in one} == {"a", "b"} for one in after.values())
    assert moved(of((1, 2), (3, 4), (2, 1), (4, 3)), after) == 4


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"t-0 has 3 replicas; 2 brokers are named: \[1, 2\]"):
        balanced(of((1, 2, 3)), {1: None, 2: None})


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[dict[Place, tuple[int, ...]], dict[int, str | None]]:
    brokers = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6, unique=True))
    racks = draw(st.sampled_from([(None,), ("a", "b"), ("a", "b", "c")]))
    known = {b: racks[n % len(racks)] for n, b in enumerate(brokers)}
    factor = draw(st.integers(1, len(brokers)))
    replicas = st.lists(st.integers(1, 9), min_size=factor, max_size=factor, unique=True).map(tuple)
    return of(*draw(st.lists(replicas, min_size=1, max_size=12))), known


@given(_clusters())
@settings(max_examples=150, deadline=None)
def test_every_placement_is_whole_and_stays_put(cluster: tuple[dict[Place, tuple[int, ...]], dict[int, str | None]]) -> None:
    before, racks = cluster
    after = balanced(before, racks)
    for place, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(before[place])
        assert set(replicas) <= set(racks)
        per_rack = Counter(racks[b] for b in replicas)
        room = Counter(racks.values())
        if None not in room:
            assert all(per_rack[rack] <= max(1, -(-len(replicas) // len(room))) or per_rack[rack] <= room[rack] for rack in room)
    load = Counter({b: sum(b in one for one in after.values()) for b in racks})
    if len(set(racks.values())) == 1:
        assert max(load.values()) - min(load.values()) <= 1
    assert moved(after, balanced(after, racks)) == 0, "once more it changes nothing"
