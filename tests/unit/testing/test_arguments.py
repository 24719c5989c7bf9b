"""Numbers on a command line."""

from __future__ import annotations

import pytest

from replog.testing.arguments import natural, positive


def test_numbers_are_taken_from_where_they_may_begin() -> None:
    assert [positive("1"), positive("70"), natural("0"), natural("3")] == [1, 70, 0, 3]


@pytest.mark.parametrize("text", ["0", "-1", "", "many", "1.5", "nan"])
def test_what_is_no_positive_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is less than 1|invalid literal"):
        positive(text)


def test_what_is_below_nothing_is_no_natural_number() -> None:
    with pytest.raises(ValueError, match="-1 is less than 0"):
        natural("-1")
