"""What is remembered of the last changes, against all of them."""

from __future__ import annotations

import random

import pytest

from replog.broker import recent
from replog.broker.recent import Recent


@pytest.mark.parametrize("seed", range(20))
def test_it_says_all_that_changed_since_a_version_or_that_it_does_not_know(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "CHANGES_MAX", 8)
    dice = random.Random(seed)
    since = version = dice.randrange(5)
    kept, changes = Recent[int](since), list[tuple[int, int]]()
    known = 0
    for _ in range(60):
        version += dice.randrange(1, 3)
        changed = [dice.randrange(12) for _ in range(dice.randrange(4))]
        kept.note(changed, version)
        changes += [(one, version) for one in changed]
        newest = dict(changes)
        for asked in range(version + 1):
            found = kept.after(asked)
            known += found is not None
            assert found in (None, {one for one, at in newest.items() if at > asked})
            assert found is not None or asked < since or sum(at >= asked for at in newest.values()) > 8
            assert found is None or asked >= since
        assert len(kept._versions) <= 8
        assert kept.after(version) == frozenset()
    assert known > 60
