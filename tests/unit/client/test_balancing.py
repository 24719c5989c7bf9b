"""Balanced placements: even, rack aware, and with no more movement than that takes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest

from replog.client.balancing import Place, balanced
from replog.client.evening import Evening
from replog.controller.assignment import spread as spread_by_the_controller
from replog.errors import UsageError

Placement = dict[Place, tuple[int, ...]]
Racks = dict[int, str | None]


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


def test_brokers_without_a_rack_stand_in_one() -> None:
    """As where new partitions are placed: a topic that was just made has no copy to move for the sake of racks."""
    racks: Racks = {1: "a", 2: "a", 3: None, 4: "", 5: None}
    after = balanced(of((3, 4), (4, 5), (5, 3)), racks)
    assert [sum(bool(racks[broker]) for broker in one) for one in after.values()] == [1, 1, 1]
    made: Placement = {("t", number): replicas for number, replicas in spread_by_the_controller(racks, 6, 2).items()}
    assert [sum(bool(racks[broker]) for broker in one) for one in made.values()] == [1] * 6
    assert all(is_spread(one, racks_of(racks)) for one in balanced(made, racks).values())


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"t-0 has 3 replicas; there are 2 brokers for them: \[1, 2\]"):
        balanced(of((1, 2, 3)), {1: None, 2: None})


@pytest.mark.parametrize("replicas", [(), (1, 1)])
def test_what_is_no_placement_is_refused(replicas: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"t-0 is on \[.*\]; a partition is on one broker or more, all different"):
        balanced(of(replicas), {1: None, 2: None})


# ------------------------------------------------------------------------------------------------ whatever there is to balance


def mixed(seed: int, brokers_max: int = 7, partitions_max: int = 12) -> tuple[Placement, Racks]:
    """Brokers that join and leave, uneven racks, some unknown, fewer racks than replicas, different factors, loads to one side."""
    rng = random.Random(seed)
    everybody = rng.sample(range(1, 100), rng.randint(1, brokers_max))
    staying = rng.sample(everybody, rng.randint(1, len(everybody)))
    before = rng.sample(everybody, rng.randint(1, len(everybody)))
    names = rng.choice(["-", "a", "ab", "aaab", "abc", "abb-", "abcde"])
    racks = {broker: None if name == "-" else name for broker in staying for name in rng.choice(names)}
    most = min(len(staying), len(before))
    factors = [rng.randint(1, most)] if rng.random() < 0.5 else list(range(1, most + 1))
    favour = rng.choice([0, 0, 1, 3])
    placed = {}
    for n in range(rng.randint(1, partitions_max)):
        order = sorted(before, key=lambda broker: rng.random() ** (1 + favour * before.index(broker)))
        placed["tu"[n % 2], n] = tuple(order[: rng.choice(factors)])
    return placed, racks


def racks_of(racks: Racks) -> dict[int, object]:
    """Brokers without a rack stand in one."""
    return {broker: rack or "" for broker, rack in racks.items()}


def is_spread(replicas: Iterable[int], racks: dict[int, object]) -> bool:
    """Whether no rack has two copies more than another that has a broker to spare."""
    own, size = Counter(racks[broker] for broker in replicas), Counter(racks.values())
    return all(own[one] <= own[other] + 1 or own[other] == size[other] for one in size for other in size)


def spread(counted: Counter[int], brokers: Iterable[int]) -> int:
    counts = [counted[broker] for broker in brokers]
    return max(counts) - min(counts)


def falling(counted: Counter[int], brokers: Iterable[int]) -> list[int]:
    return sorted((counted[broker] for broker in brokers), reverse=True)


def is_even(load: Counter[int], brokers: Iterable[int], shifts: Iterable[tuple[int, int]]) -> bool:
    """Whether no chain of shifts leads from a broker to one that has two less: then nothing is more even."""
    onward: dict[int, set[int]] = {}
    for a, b in shifts:
        onward.setdefault(a, set()).add(b)
    for full in brokers:
        reached, todo = {full}, [full]
        while todo:
            new = onward.get(todo.pop(), set()) - reached
            reached |= new
            todo += new
        if any(load[full] - load[other] > 1 for other in reached):
            return False
    return True


def is_cheapest(before: Placement, after: Placement, racks: dict[int, object], load: Counter[int]) -> bool:
    """Whether no cycle of shifts, and no chain that swaps who has one more, has fewer copies made: then nothing as even has."""
    price = {(a, b): 0 if load[b] == load[a] + 1 else 99 for a in racks for b in racks}
    for place, replicas in after.items():
        old = before[place]
        for a, b in product(replicas, set(racks) - set(replicas)):
            worth = (b not in old) - (a not in old)
            if worth < price[a, b] and is_spread({*replicas, b} - {a}, racks):
                price[a, b] = worth
    for middle, a, b in product(racks, repeat=3):
        price[a, b] = min(price[a, b], price[a, middle] + price[middle, b])
    return all(price[a, a] >= 0 for a in racks)


def test_whatever_there_is_to_balance() -> None:
    """The four guarantees, one after the other, each by its own words."""
    for seed in range(4_000):
        before, known = mixed(seed)
        racks = racks_of(known)
        after = balanced(before, known)
        load, leads = Counter(b for one in after.values() for b in one), Counter(one[0] for one in after.values())
        assert list(after) == sorted(before), seed
        for place, replicas in after.items():
            assert len(set(replicas)) == len(replicas) == len(before[place]), seed
            assert set(replicas) <= set(racks), seed
            assert is_spread(replicas, racks), seed
            if len(replicas) <= len(set(racks.values())):
                assert len({racks[b] for b in replicas}) == len(replicas), seed
        shifts = {
            (a, b) for one in after.values() for a in one for b in racks if b not in one and is_spread({*one, b} - {a}, racks)
        }
        assert is_even(load, racks, shifts), seed
        assert is_cheapest(before, after, racks, load), seed
        if len(set(Counter(racks.values()).values())) == 1:
            assert spread(load, racks) <= 1, seed
        assert is_even(leads, racks, {(one[0], b) for one in after.values() for b in one[1:]}), seed
        if spread(load, racks) <= 1 and len({len(one) for one in after.values()}) == 1:
            assert spread(leads, racks) <= 1, seed
        assert balanced(after, known) == after, f"{seed}: what is balanced stays as it is"
        if seed % 10 == 0:
            again = balanced(dict(reversed(before.items())), dict(reversed(known.items())))
            assert list(again.items()) == list(after.items()), f"{seed}: the same input in another order"


def test_nothing_as_even_copies_less_or_changes_fewer_leaders() -> None:
    """Against every placement that there is, of little."""
    for seed in range(1_500):
        before, known = mixed(seed, brokers_max=5, partitions_max=4)
        racks = racks_of(known)
        choices = [[set(one) for one in combinations(racks, len(old)) if is_spread(one, racks)] for old in before.values()]

        olds, after = list(before.values()), balanced(before, known)

        def copied(held: Sequence[set[int]], olds: Sequence[tuple[int, ...]] = olds) -> int:
            return sum(len(one - set(old)) for one, old in zip(held, olds, strict=True))

        def changed(leaders: Sequence[int], olds: Sequence[tuple[int, ...]] = olds) -> int:
            return sum(leader != old[0] for leader, old in zip(leaders, olds, strict=True))

        held, leaders = [set(after[place]) for place in before], [after[place][0] for place in before]
        every = ((falling(Counter(b for one in each for b in one), racks), copied(each)) for each in product(*choices))
        assert (falling(Counter(b for one in held for b in one), racks), copied(held)) == min(every), seed
        everyone = ((falling(Counter(each), racks), changed(each)) for each in product(*held))
        assert (falling(Counter(leaders), racks), changed(leaders)) == min(everyone), seed


@pytest.mark.parametrize("rack_of", [lambda _: None, lambda b: "a" if b < 2 else "b" if b < 8 else "c"], ids=["no racks", "uneven racks"])
def test_ten_thousand_partitions(rack_of: Callable[[int], str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in proportion to what moves: hardly more shifts than copies, however many partitions and brokers there are."""
    made: list[Evening] = []

    class Counted(Evening):
        def __init__(self, *arguments: Any) -> None:
            made.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr("replog.client.balancing.Evening", Counted)
    rng, racks = random.Random(5), {b: rack_of(b) for b in range(20)}
    old = {("t", n): tuple(sorted(range(5, 20), key=lambda b: rng.random() ** b)[:3]) for n in range(10_000)}
    after = balanced(old, racks)
    load, leads = Counter(b for one in after.values() for b in one), Counter(one[0] for one in after.values())
    assert {one.load == [of[b] for b in racks] for one, of in zip(made, (load, leads), strict=True)} == {True}
    assert max(leads.values()) - min(leads.values()) <= 1
    expected = {b: 1_500 for b in racks} if racks[0] is None else {b: (5_000, 1_666, 833)["abc".index(str(racks[b]))] for b in racks}
    assert all(0 <= load[b] - expected[b] <= 1 for b in racks)
    assert sum(one.shifts for one in made) < 1.2 * (moved(old, after) + 10_000)
