"""What a program records by mistake is refused with a word that says so: judged, it would be records lost and records that nobody sent."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from replog.errors import UsageError
from replog.testing.history import BadHistory, History, check


@pytest.mark.parametrize("values", ["hello", b"hello", bytearray(b"hello")])
def test_one_text_is_no_list_of_values(values: Any) -> None:
    history = History()
    with pytest.raises(UsageError, match=r"hello.*; it must be a list, of one value for each record"):
        history.invoke_send("w", "k", values)
    assert history.operations() == 0


@pytest.mark.parametrize("value", [b"b", None, 1.5])
def test_a_value_that_is_sent_is_a_string_or_an_integer(value: Any) -> None:
    history = History()
    history.invoke_send("w", "k", ["a", 7]).ok(0)
    history.invoke_send("v", "k", ["c", value]).ok(2)
    with pytest.raises(BadHistory, match=rf"v sends {value!r} to k at .*; a value is a string or an integer"):
        check(history)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("ab", "an offset is an integer"),
        (7, "what is read is pairs of an offset and a value"),
        ((1,), "what is read is pairs of an offset and a value"),
        ((1, "b", 3), "what is read is pairs of an offset and a value"),
        (("1", "b"), r"an offset is an integer, and a value a string or an integer \(`Record.text\(\)` is one\)"),
        ((None, "b"), "an offset is an integer"),
        ((1, b"b"), r"a value a string or an integer \(`Record.text\(\)` is one\)"),
    ],
)
def test_what_is_read_is_pairs_of_an_offset_and_a_value(record: Any, why: str) -> None:
    history = History()
    history.invoke_send("w", "k", ["a", "b"]).ok(0)
    history.invoke_poll("r", "k", 0).ok([(0, "a"), [1, "b"]])
    assert check(history).errors == []
    history.invoke_poll("s", "k", 0).ok([(0, "a"), record])
    with pytest.raises(BadHistory, match=rf"s reads .* from k at .*; .*{why}"):
        check(history)


def test_whatever_is_an_integer_is_one() -> None:
    class Offset(IntEnum):
        FIRST = 0
        SECOND = 1

    history = History()
    history.invoke_send("w", "k", ["a", "b"]).ok(0)
    history.invoke_poll("r", "k", 0).ok([(Offset.FIRST, "a"), (Offset.SECOND, "b")])
    history.invoke_poll("s", "k", 0).ok([(False, "a"), (True, "b")])
    assert check(history).errors == []
