"""Files are looked at as often as is said, and no more often."""

from __future__ import annotations

from pathlib import Path

import pytest

from replog.security.watched import LOOK_S, Watched


@pytest.mark.parametrize(("look_s", "at_once"), [(LOOK_S, "old"), (0.0, "newer")])
def test_a_change_is_seen_with_the_next_look(tmp_path: Path, look_s: float, at_once: str) -> None:
    file, now_s = tmp_path / "file", [100.0]
    file.write_text("old")
    watched = Watched([str(file)], file.read_text, "words", look_s=look_s, now_s=lambda: now_s[0])
    now_s[0] += LOOK_S
    assert watched.now() == "old"
    file.write_text("newer")
    assert watched.now() == at_once
    now_s[0] += LOOK_S
    assert watched.now() == "newer"
    assert watched.times == 2
