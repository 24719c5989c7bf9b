"""When what a broker process holds is frozen, and when that ends."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from replog.cli.sparing import Sparing


class World:
    """A broker whose state is said, and a clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.state: tuple[int, int | None] = 1, None
        self.sparing = Sparing(lambda: self.state, lambda: self.now_s)

    def pass_time(self, seconds: float) -> None:
        """Look four times a second."""
        for _ in range(int(seconds * 4)):
            self.now_s += 0.25
            self.sparing.look()


@pytest.fixture
def world(nothing_frozen: None) -> Iterator[World]:
    assert gc.get_freeze_count() == 0
    made = World()
    yield made
    made.sparing.close()
    assert gc.get_freeze_count() == 0


class Circle:
    """Garbage that only a collection takes."""

    def __init__(self) -> None:
        self.me = self


def circle() -> weakref.ref[Circle]:
    return weakref.ref(Circle())


def test_it_is_frozen_once_nothing_has_changed_for_five_seconds(world: World) -> None:
    world.pass_time(60)
    assert gc.get_freeze_count() == 0, "it is not ready"
    for version in range(10):
        world.state = (1, version)
        world.pass_time(4)
        assert gc.get_freeze_count() == 0, "topics are made, leaders are elected"
    left = circle()
    world.pass_time(2)
    assert gc.get_freeze_count() > 1_000
    assert left() is None, "what is garbage already is not kept for ever"


def test_what_comes_later_is_frozen_too_but_not_more_than_once_a_minute(world: World) -> None:
    world.state = (1, 1)
    world.pass_time(6)
    frozen = gc.get_freeze_count()
    later = [[number] for number in range(5_000)]
    world.pass_time(600)
    assert gc.get_freeze_count() == frozen, "nothing of the cluster has changed"
    world.state = (1, 2)
    world.pass_time(6)
    assert gc.get_freeze_count() >= frozen + len(later)
    gone, world.state = circle(), (1, 3)
    world.pass_time(50)
    assert gone() is not None, "it was done less than a minute ago"
    world.pass_time(10)
    assert gone() is None


@pytest.mark.parametrize("after", [(0, None), (2, None), (2, 1)])
def test_what_is_left_of_a_life_that_is_over_can_go(world: World, after: tuple[int, int | None]) -> None:
    world.state = (1, 1)
    left = Circle()
    world.pass_time(6)
    gone = weakref.ref(left)
    del left
    gc.collect()
    assert gone() is not None, "it was frozen when it was needed"
    world.state = (1, None)
    world.pass_time(1)
    assert gc.get_freeze_count() > 1_000, "it has lost its session, and goes on"
    world.state = after
    world.pass_time(1)
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gone() is None
    world.state = (2, 1)
    world.pass_time(6)
    assert gc.get_freeze_count() > 1_000, "the next life is spared as well, and at once"


def test_what_the_program_has_frozen_itself_stays_so(world: World) -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        world.state = (1, 1)
        world.pass_time(10)
        world.sparing.close()
        assert gc.get_freeze_count() == before
    finally:
        gc.unfreeze()
