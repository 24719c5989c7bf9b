"""`eventually` waits for a condition, and says what it waited for."""

from __future__ import annotations

import pytest

from replog.testing.eventually import eventually


def test_returns_the_first_true_answer() -> None:
    answers = iter([0, "", "ready", "never asked"])
    assert eventually(lambda: next(answers), every_s=0) == "ready"
    assert next(answers) == "never asked"


def test_says_what_was_not_met() -> None:
    def queue_is_empty() -> bool:
        return False

    with pytest.raises(AssertionError, match=r"queue_is_empty was not met within 0 s; it last returned False"):
        eventually(queue_is_empty, 0)


def test_asks_at_least_once_however_short_the_deadline() -> None:
    assert eventually(lambda: True, 0)


def test_an_exception_of_the_condition_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 // 0)
