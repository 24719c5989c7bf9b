"""How long copies are waited for: by what there is to copy, and what a limit for moves makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.checks.situations import booted

from replog.messages import Fetched, FetchedEntry
from replog.model import Assignment
from replog.slices import MemorySlice
from replog.testing.simulator import copying
from replog.testing.simulator.copying import Moved, Patience
from replog.testing.simulator.limits import Limits
from replog.testing.simulator.world import World

pytestmark = pytest.mark.simulation
FOR_EVER_MS = float(1 << 45)


def limited(rate: int, **shape: Any) -> tuple[World, Moved]:
    """A cluster with a limit for moves, and its account."""
    world = booted(drift=0.0, codec=False, limits=Limits(reassignment_bytes_per_s=rate), **shape)
    assert world.moved is not None
    return world, world.moved


def moving(world: World, original: tuple[int, ...]) -> None:
    """The store has another assignment."""
    (ledger,) = world.checks.ledgers.values()
    ledger.assignment = Assignment(ledger.replicas, adding=tuple(set(ledger.replicas) - set(original)), original=original)


def answer(world: World, size: int) -> Fetched:
    """What brings so many bytes."""
    (identity,) = world.checks.ledgers
    return Fetched(0, 0, 0, 0, [FetchedEntry(identity, 0, 0, slices=[MemorySlice(0, 1, bytes(size))])])


def says(world: World, broker: int, free_ms: float) -> None:
    """A broker reckons that it is even with its limit only then."""
    running = world.nodes[broker].broker
    assert running is not None
    running._fetching._throttle._free_ms = free_ms


def test_what_a_broker_owes_to_its_limit_is_no_more_than_what_moves_have_brought() -> None:
    world, moved = limited(1_000)
    now_ms = world.now_ms
    says(world, 2, FOR_EVER_MS)
    assert moved.owed_ms(world.nodes[2]) == 0, "a throttle that is wrong"
    moved.arrived(2, answer(world, 500), now_ms)
    assert moved.owed_ms(world.nodes[2]) == 0, "nothing moves"
    moving(world, original=(1, 3))
    moved.stored(world.checks.ledgers)
    for broker in (2, 3):
        moved.arrived(broker, answer(world, 500), now_ms)
    moved.arrived(2, answer(world, 250), now_ms + 100)
    says(world, 3, FOR_EVER_MS)
    assert [moved.owed_ms(world.nodes[broker]) for broker in (1, 2, 3)] == [0, 751, 0]
    says(world, 2, world.nodes[2].clock.now(now_ms) + 300.0)
    assert 299 <= moved.owed_ms(world.nodes[2]) <= 301, "and no more than it says itself"


def test_what_came_for_a_move_that_is_over_is_paid_for_all_the_same() -> None:
    """A broker hears of its end later than the store."""
    world, moved = limited(1_000)
    moving(world, original=(1, 3))
    moved.stored(world.checks.ledgers)
    moving(world, original=())
    moved.stored(world.checks.ledgers)
    says(world, 2, FOR_EVER_MS)
    moved.arrived(2, answer(world, 2_000), world.now_ms)
    assert moved.owed_ms(world.nodes[2]) == 2_001


def test_a_world_keeps_that_account_of_what_arrives() -> None:
    world, moved = limited(1_000)
    moving(world, original=(1, 3))
    world.applied([])
    says(world, 2, FOR_EVER_MS)
    world.send(1, 2, answer(world, 3_000))
    world.run_until(world.now_ms + 2_000, lambda: moved.owed_ms(world.nodes[2]) > 0)
    assert moved.owed_ms(world.nodes[2]) == 3_001
    assert Patience(world).ms == 3_001
    assert booted().moved is None, "without a limit there is nothing to be paid for"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """What there is to copy is what a test says."""
    made = booted()
    monkeypatch.setattr(copying, "copying_ms", lambda world: world.to_copy_ms)
    return made


def looked(patience: Patience, world: Any, to_copy_ms: int, at_ms: int) -> int:
    """What it allows after a look at that time."""
    world.to_copy_ms, world.now_ms = to_copy_ms, at_ms
    patience.look(world)
    return patience.ms


def test_what_retention_takes_away_was_fetched_all_the_same(world: World) -> None:
    patience, began_ms = Patience(world), world.now_ms
    allowed = [looked(patience, world, to_copy, began_ms + at) for at, to_copy in ((0, 700), (1_000, 40_000), (2_000, 0), (3_000, 500))]
    assert allowed == [700, 40_000, 40_000, 40_000]


def test_a_log_that_grows_when_nobody_can_append_any_more_is_not_waited_for(world: World) -> None:
    patience, began_ms = Patience(world), world.now_ms
    end_ms = 2 * world.plan.shape.client_config().delivery_timeout_ms
    assert looked(patience, world, 1_000, began_ms + end_ms) == 1_000
    assert looked(patience, world, 99_000, began_ms + end_ms + 200) == 1_000


def test_each_log_waits_for_all_others_where_moves_are_slow() -> None:
    world, _ = limited(1_000)
    (identity,) = world.checks.ledgers
    world.checks.copies(identity)[1].sizes = [(0, 5_000), (1, 10_000)]
    fetches = 2 * 10_000 // min(world.plan.shape.fetch_partition_bytes, world.config.fetch_bytes_max)
    assert copying.copying_ms(world) == fetches * (4 * world.plan.shape.delay_ms + 2) + 10_000
