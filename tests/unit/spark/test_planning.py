"""Slicing ranges and limiting micro-batches: tables, and properties that hold for all numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replog.model import PartitionId, TopicPartition
from replog.spark.planning import OffsetRange, by_bytes, by_records, split


def ranges(*sizes: int, begin: int = 100) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("t", n), PartitionId(b"i" * 16, n, 0), begin, begin + size, 3) for n, size in enumerate(sizes)
    ]


def cut(sizes: list[int], min_partitions: int | None = None, max_records: int | None = None) -> list[list[int]]:
    """The sizes of the pieces of each range."""
    pieces = split(ranges(*sizes), min_partitions, max_records)
    return [[piece.size for piece in pieces if piece.place.partition == n] for n in range(len(sizes))]


@pytest.mark.parametrize(
    ("sizes", "min_partitions", "max_records", "expected"),
    [
        ([10, 20], None, None, [[10], [20]]),
        ([10, 0, 20], None, None, [[10], [], [20]]),
        ([10, 20], 2, None, [[10], [20]]),
        ([100], 3, None, [[33, 33, 34]]),
        ([10, 90], 10, None, [[10], [10] * 9]),
        ([1, 1, 98], 4, None, [[1], [1], [49, 49]]),
        ([1, 1], 5, None, [[1], [1]]),
        ([1000, 1], 3, None, [[500, 500], [1]]),
        ([10, 21], None, 10, [[10], [7, 7, 7]]),
        ([10, 21], 10, 10, [[3, 3, 4], [3, 4, 3, 4, 3, 4]]),
        ([], 5, 5, []),
    ],
)
def test_split(sizes: list[int], min_partitions: int | None, max_records: int | None, expected: list[list[int]]) -> None:
    assert cut(sizes, min_partitions, max_records) == expected


@given(
    st.lists(st.integers(0, 10_000), max_size=8),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 500),
)
def test_pieces_join_to_what_was_cut(sizes: list[int], min_partitions: int | None, max_records: int | None) -> None:
    pieces = split(ranges(*sizes), min_partitions, max_records)
    assert all(piece.size > 0 for piece in pieces)
    assert all(piece.size <= (max_records or 10_000) for piece in pieces)
    for n, size in enumerate(sizes):
        mine = [piece for piece in pieces if piece.place.partition == n]
        marks = [piece.start for piece in mine] + [100 + size]
        assert [piece.stop for piece in mine] == marks[1:]
        assert not mine or marks[0] == 100


def positions(*numbers: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", n): at for n, at in enumerate(numbers)}


@pytest.mark.parametrize(
    ("start", "latest", "limit", "expected"),
    [
        ((0, 0), (60, 20), 8, (6, 2)),
        ((0, 0), (60, 20), 80, (60, 20)),
        ((0, 0), (60, 20), 100, (60, 20)),
        ((5, 5), (5, 5), 1, (5, 5)),
        ((0, 0, 0), (1_000, 1, 1), 10, (9, 1, 1)),  # nobody starves
        ((0,) * 4, (1,) * 4, 2, (1,) * 4),
        ((100,), (2**62,), 5, (105,)),
        ((9, 0), (5, 10), 5, (5, 5)),  # an end below a start is somebody else's business
    ],
)
def test_by_records(start: tuple[int, ...], latest: tuple[int, ...], limit: int, expected: tuple[int, ...]) -> None:
    assert by_records(positions(*start), positions(*latest), limit) == positions(*expected)


@pytest.mark.parametrize(
    ("latest", "limit", "sizes", "expected"),
    [
        ((100, 100), 1_000, (10.0, 90.0), (10, 10)),
        ((100, 100), 10_000, (10.0, 90.0), (100, 100)),
        ((100, 100), 1, (10.0, 90.0), (1, 1)),
        ((100, 0), 55, (10.0, 90.0), (5, 0)),
    ],
)
def test_by_bytes(latest: tuple[int, ...], limit: int, sizes: tuple[float, ...], expected: tuple[int, ...]) -> None:
    means = dict(zip(positions(*latest), sizes, strict=True))
    assert by_bytes(positions(0, 0), positions(*latest), limit, means) == positions(*expected)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10_000)), min_size=1, max_size=6), st.integers(1, 10_000))
def test_a_limit_is_kept_and_everything_gets_on(shape: list[tuple[int, int]], limit: int) -> None:
    start, latest = positions(*(a for a, _ in shape)), positions(*(a + b for a, b in shape))
    for ends in (by_records(start, latest, limit), by_bytes(start, latest, limit * 7, dict.fromkeys(latest, 7.0))):
        assert all(start[place] <= ends[place] <= latest[place] for place in latest)
        assert all(ends[place] > start[place] for place in latest if latest[place] > start[place])
        taken = sum(ends[place] - start[place] for place in latest)
        assert taken <= limit + sum(1 for place in latest if latest[place] > start[place])
