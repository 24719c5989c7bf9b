"""Histograms count each value in one bucket, by inclusive upper edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.metrics.histogram import SECONDS, Histogram


@pytest.mark.parametrize(("value", "bucket"), [(0.0, 0), (0.1, 0), (0.10001, 1), (1.0, 1), (1.1, 2), (1e9, 2)])
def test_an_edge_belongs_to_the_bucket_below(value: float, bucket: int) -> None:
    times = Histogram((0.1, 1.0))
    times.observe(value)
    assert times.observed().counts[bucket] == times.observed().count == 1


@given(st.lists(st.tuples(st.floats(0, 1_000), st.integers(1, 5))))
def test_what_is_observed_is_counted_and_summed(values: list[tuple[float, int]]) -> None:
    times = Histogram()
    for value, many in values:
        times.observe(value, many)
    found = times.observed()
    assert found.count == sum(many for _, many in values)
    assert found.sum == pytest.approx(sum(value * many for value, many in values))
    assert times.longest == max((value for value, _ in values), default=0.0)
    for edge, count in found.cumulative():
        assert count == sum(many for value, many in values if value <= edge)
    assert [edge for edge, _ in found.cumulative()] == [*SECONDS, float("inf")]


def test_two_together_are_the_sum() -> None:
    one, two = Histogram((1.0,)), Histogram((1.0,))
    one.observe(0.5)
    two.observe(3.0, 2)
    assert (one.observed() + two.observed()).counts == (1, 2)
    assert (one.observed() + two.observed()).sum == 6.5
