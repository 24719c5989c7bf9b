"""A row that is written whole: the keys of its maps become names as Spark's `to_json` has them, each its own, or the row is refused."""

from __future__ import annotations

import enum
import json
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import msgpack
import pytest
from pyspark.sql import Row

from replog.errors import UsageError
from replog.spark.rows import RowColumns


class Number(enum.IntEnum):
    ONE = 1


class Text(enum.StrEnum):
    A = "a"


def place(index: int) -> str:
    return f"row {index} of partition 2"


def written(row: Any, format: Literal["json", "msgpack"]) -> Any:
    (value,) = RowColumns(format=format).of([row], place).values
    return json.loads(value or b"") if format == "json" else msgpack.unpackb(value or b"")


@pytest.mark.parametrize("format", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("k", "k"),
        (1, "1"),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (-float("inf"), "-Infinity"),
        (Decimal("1.10"), "1.10"),
        (date(2013, 1, 2), "2013-01-02"),
        (Number.ONE, "1"),
        (Text.A, "a"),
    ],
)
def test_the_name_of_a_key(key: Any, name: str, format: Literal["json", "msgpack"]) -> None:
    assert written(Row(m={key: 1}), format) == {"m": {name: 1}}
    assert written({"m": [{key: {key: 1}}]}, format) == {"m": [{name: {name: 1}}]}
    assert written({key: 1}, format) == {name: 1}


def test_msgpack_holds_a_binary_key() -> None:
    assert written(Row(m={b"k\xff": 1, b"k": 2, "k": 3}), "msgpack") == {"m": {b"k\xff": 1, b"k": 2, "k": 3}}


WHOLE = "column 'm' of row 0 of partition 2"
TWICE = "has a map with two keys of one name: cast its keys to one type, or give a function$"
KEY = "as a key of a map: cast it to string, or give a function$"


@pytest.mark.parametrize("format", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Row(m={1: "a", "1": "b"}), f"{WHOLE} {TWICE}"),
        (Row(m=[{"true": "a", True: "b"}]), f"{WHOLE} {TWICE}"),
        (Row(m={float("nan"): "a", float("-nan"): "b"}), f"{WHOLE} {TWICE}"),
        ({1: "a", "1": "b"}, f"^row 0 of partition 2 {TWICE}"),
        (Row(m={Row(a=1): "x"}), f"{WHOLE} has Row {KEY}"),
        (Row(m={(1, 2): "x"}), f"{WHOLE} has tuple {KEY}"),
        (Row(m={frozenset({1}): "x"}), f"{WHOLE} has frozenset {KEY}"),
        (Row(m={1j: "x"}), f"{WHOLE} has complex {KEY}"),
    ],
)
def test_what_no_key_can_be(row: Any, said: str, format: Literal["json", "msgpack"]) -> None:
    with pytest.raises(UsageError, match=said):
        written(row, format)


def test_a_binary_key_in_json() -> None:
    with pytest.raises(UsageError, match=f"{WHOLE} has a map whose keys are binary, which JSON does not hold: use format='msgpack'"):
        written(Row(m={b"k": 1}), "json")
