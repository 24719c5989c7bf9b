"""What the demo calls wrong."""

from __future__ import annotations

import pytest

from replog.cli.demo import differences

SENT = {0: ["a", "b"], 1: ["c"]}


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({0: ["a", "b"], 1: ["c"]}, []),
        ({0: ["a"], 1: ["c"]}, ["demo-0: 2 records were acknowledged; read were 1, or others"]),
        ({0: ["b", "a"], 1: ["c"]}, ["demo-0: 2 records were acknowledged; read were 2, or others"]),
        ({0: ["a", "b"]}, ["demo-1: 1 records were acknowledged; read were 0, or others"]),
        ({0: ["a", "b"], 1: ["c"], 2: ["d"]}, ["demo-2: 0 records were acknowledged; read were 1, or others"]),
    ],
)
def test_differences(found: dict[int, list[str]], wrong: list[str]) -> None:
    assert differences(SENT, found) == wrong
