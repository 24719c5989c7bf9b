"""Real identifiers have the shape that `Ids` promises, and do not repeat."""

from __future__ import annotations

from replog.ports import Ids
from replog.runtime.ids import RandomIds
from replog.testing.clock import SeededIds


def draw(ids: Ids) -> tuple[bytes, int, float]:
    return ids.token(), ids.number(), ids.jitter()


def test_shapes() -> None:
    ids = RandomIds()
    drawn = [draw(ids) for _ in range(200)]
    assert {len(token) for token, _, _ in drawn} == {16}
    assert all(0 <= number < 2**63 for _, number, _ in drawn)
    assert all(0 <= jitter < 1 for _, _, jitter in drawn)
    assert len({token for token, _, _ in drawn}) == len({number for _, number, _ in drawn}) == 200


def test_a_seed_decides_everything() -> None:
    one, two, other = SeededIds(1), SeededIds(1), SeededIds(2)
    drawn = [draw(one) for _ in range(50)]
    assert drawn == [draw(two) for _ in range(50)]
    assert drawn[0] != draw(other)
    assert all(len(token) == 16 and 0 <= number < 2**63 and 0 <= jitter < 1 for token, number, jitter in drawn)
