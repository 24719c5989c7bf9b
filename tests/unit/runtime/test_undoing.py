"""What an unfinished start has taken is let go, the last first, whatever one step of it says."""

from __future__ import annotations

import pytest

from replog.errors import Unavailable
from replog.runtime.undoing import Undoing


def test_everything_is_undone_and_an_interrupted_step_once_more() -> None:
    undoing, done, trouble = Undoing(), list[str](), [KeyboardInterrupt(), Unavailable("the store is silent")]

    def third() -> None:
        done.append("third")
        if trouble:
            raise trouble.pop(0)

    for step in (lambda: done.append("first"), lambda: done.append("second"), third):
        undoing.later(1, step)
    undoing.later(2, lambda: done.append("of another"))
    with pytest.raises(KeyboardInterrupt):
        undoing.undo(1)
    undoing.undo(1)
    assert done == ["third", "third", "second", "first"]
    undoing.undo(1)
    undoing.finished(2)
    undoing.undo_all()
    assert len(done) == 4
