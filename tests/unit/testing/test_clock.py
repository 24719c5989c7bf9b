"""A clock that moves when told."""

from __future__ import annotations

import pytest

from replog.testing.clock import ManualClock


def test_time_passes_when_told() -> None:
    clock = ManualClock(now_ms=5, wall_ms=1_000)
    assert (clock.now_ms(), clock.wall_ms()) == (5, 1_000)
    clock.advance(7)
    assert (clock.now_ms(), clock.now_ns(), clock.wall_ms()) == (12, 12_000_000, 1_007)


def test_only_the_wall_clock_can_be_set_back() -> None:
    clock = ManualClock(wall_ms=1_000)
    clock.set_wall(10)
    assert (clock.now_ms(), clock.wall_ms()) == (0, 10)
    with pytest.raises(AssertionError):
        clock.advance(-1)
